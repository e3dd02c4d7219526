// SPDX-License-Identifier: Apache-2.0
// Times several backends side by side.
//
//   size s:   warm-ups of A, warm-ups of B,  then batches:  A B  B A  A B  ...
//
// The batches are short and change places, so that a machine that becomes slower or faster does so
// for both. A batch on hot buffers begins with an untimed call, which brings them back into the
// caches after the other backend's.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include <tutti/communicator.hpp>
#include <tutti/mpi.hpp>

#include "apps/benchmark/work.hpp"

namespace apps::benchmark {

struct TimingOptions {
  std::optional<int> iterations;
  int warmups = 0;
};

/// Timed calls: as many as asked for; else from kMinIterations to kMaxIterations, by how many of
/// `seconds_per_call` fit into kTimePerSize.
int choose_iterations(const TimingOptions& options, double seconds_per_call);
inline constexpr int kMinIterations = 20;
inline constexpr int kMaxIterations = 2000;
inline constexpr double kTimePerSize = 0.25;  // seconds

/// Calls of one backend before the other's turn: from 1 to 50, about ten turns in all.
int batch_size(int iterations);

/// Seconds of each work's timed calls: the longest over the ranks, each rank's taken from a common
/// Communicator::barrier on. Collective.
std::vector<std::vector<double>> time_side_by_side(tutti::Communicator& world, MPI_Comm comm,
                                                   std::span<Work> works,
                                                   const TimingOptions& options);

}  // namespace apps::benchmark
