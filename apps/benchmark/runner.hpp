// SPDX-License-Identifier: Apache-2.0
// Measures one size after the other.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tutti/communicator.hpp>
#include <tutti/mpi.hpp>

#include "apps/benchmark/machine.hpp"
#include "apps/benchmark/nccl_calls.hpp"
#include "apps/benchmark/options.hpp"
#include "apps/benchmark/result.hpp"
#include "apps/benchmark/work.hpp"

namespace apps::benchmark {

/// What is measured, in this order: each size that has an element for each rank.
/// Errors  invalid_argument: no size has; a model that cannot be read; more elements than MPI
/// counts.
std::vector<Layout> plan(const Options& options, int ranks);

class Runner {
 public:
  /// `timeout`: of each wait for NCCL.
  Runner(tutti::Communicator world, MPI_Comm comm, const Options& options, const Machine& machine,
         std::chrono::duration<double> timeout);

  /// Allocates, times, checks and frees. The same row on every rank. Collective.
  /// Errors  out_of_memory, from the library's allocations, on all ranks.
  Row measure(const Layout& layout);

 private:
  [[nodiscard]] Job job_of(const Layout& layout) const;
  [[nodiscard]] std::optional<std::size_t> packed_bytes(const Layout& layout) const;
  [[nodiscard]] bool can_run(const std::string& backend) const;
  /// Buffers and call of a backend. Collective.
  Work prepare(const Job& job, const std::string& backend);
  std::vector<Slot> make_slots(const Job& job, const std::string& backend);
  [[nodiscard]] std::string buffers_of(const std::string& backend) const;
  Result result_of(const Row& row, const std::string& backend, Work& work,
                   std::vector<double> seconds);

  tutti::Communicator world_;
  MPI_Comm comm_;
  const Options& options_;
  const Case& case_;
  std::size_t cold_bytes_;  ///< that make a cache forget; 0: hot
  std::optional<CacheSweeper> sweeper_;
  std::chrono::duration<double> timeout_;
  std::unique_ptr<NcclWorld> nccl_;  ///< once it is needed
};

}  // namespace apps::benchmark
