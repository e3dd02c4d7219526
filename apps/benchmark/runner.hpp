// SPDX-License-Identifier: Apache-2.0
// Times several backends side by side.
//
//   size s:   warm-ups of A, warm-ups of B,  then batches:  A B  B A  A B  ...
//
// The batches are short and change places, so that a machine that becomes slower or faster does so
// for both. A batch on hot or fresh buffers begins with an untimed call, which brings them back
// into the caches after the other backend's batch.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tutti/communicator.hpp>
#include <tutti/mpi.hpp>

#include "apps/benchmark/backends.hpp"
#include "apps/benchmark/machine.hpp"
#include "apps/benchmark/options.hpp"
#include "apps/benchmark/result.hpp"
#include "apps/benchmark/work.hpp"

namespace apps::benchmark {

struct TimingOptions {
  std::optional<int> iterations;
  int warmups = 0;
};

/// The number of timed calls: as many as asked for; else from kMinIterations to kMaxIterations, by
/// how many calls of `seconds_per_call` fit into kTimePerSize.
int choose_iterations(const TimingOptions& options, double seconds_per_call);
inline constexpr int kMinIterations = 20;
inline constexpr int kMaxIterations = 2000;
inline constexpr double kTimePerSize = 0.25;  // seconds

/// The number of calls of one backend before the other's turn: from 1 to 50, for about ten turns in
/// all.
int batch_size(int iterations);

/// Times the works by turns. Returns the seconds of a call in each of a work's timed iterations:
/// the longest over the ranks, each measured from a common Communicator::barrier on. Collective.
std::vector<std::vector<double>> time_side_by_side(tutti::Communicator& world, MPI_Comm comm,
                                                   std::span<TimedCall> works,
                                                   const TimingOptions& options);

// --- one size after the other --------------------------------------------------------------------

/// The layouts to measure, in this order: each size that has an element for each rank.
/// Errors  invalid_argument: no size has; a model that cannot be read; more elements than MPI
///         counts.
std::vector<Layout> plan(const Options& options, int ranks);

/// True if the memory's own speed has a meaning for a result: some tensors are on the CPU, and
/// larger than the caches of a core. Otherwise it is not measured.
bool is_about_memory(const Options& options, const std::vector<Layout>& layouts);
inline constexpr std::size_t kLeastBytesInMemory = std::size_t{1} << 20;

/// The job of a contender on this rank.
Job job_of(const Options& pass, const Layout& layout, const Contender& contender, int rank,
           int ranks);

class Runner {
 public:
  /// `timeout`: the longest wait for NCCL.
  Runner(tutti::Communicator world, MPI_Comm comm, const Options& options, const Machine& machine,
         std::chrono::duration<double> timeout);

  /// Measures one row: allocates, times, checks and frees. The row is the same on every rank.
  /// Collective.
  /// Errors  out_of_memory, from the library's allocations, on all ranks.
  Row measure(const Layout& layout);

 private:
  [[nodiscard]] std::optional<std::size_t> packed_bytes(const Layout& layout) const;
  [[nodiscard]] bool can_run(const Contender& contender) const;
  /// Makes buffers and call of a contender. Collective.
  TimedCall prepare(const Job& job, const Contender& contender);
  std::vector<CallBuffers> make_slots(const Job& job, const Contender& contender);
  Result result_of(const Row& row, const Contender& contender, TimedCall& work,
                   std::vector<double> seconds);

  tutti::Communicator world_;
  MPI_Comm comm_;
  const Options& options_;
  const Case& case_;
  std::size_t cold_bytes_;  ///< bytes that replace a cache's content; 0: none do
  std::optional<CacheSweeper> sweeper_;
  std::chrono::duration<double> timeout_;
  std::unique_ptr<NcclWorld> nccl_;  ///< null until it is needed
};

}  // namespace apps::benchmark
