// SPDX-License-Identifier: Apache-2.0
// The backends: the calls of Tutti, MPI and NCCL that are measured; and MPI for the program's own
// messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tutti/communicator.hpp>
#include <tutti/mpi.hpp>

#include "apps/benchmark/options.hpp"
#include "apps/benchmark/work.hpp"

namespace apps::benchmark {

// --- the program's own messages ------------------------------------------------------------------

/// Throws Error(communication, "MPI_Bcast: ...") unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

/// The largest value of each element over all ranks; every rank has the result. Collective.
void max_over_ranks(MPI_Comm comm, std::span<double> values);
std::uint64_t sum_over_ranks(MPI_Comm comm, std::uint64_t value);
/// The values of all ranks, in the order of ranks. Collective.
std::vector<double> gather(MPI_Comm comm, double value);
/// The text of rank `root`, on every rank. Collective.
std::string text_of_rank(MPI_Comm comm, std::string text, int root);

// --- MPI -----------------------------------------------------------------------------------------

/// False for reductions of 16-bit floating-point types, which MPI does not have. It can move them.
bool mpi_can_run(const Case& chosen, tutti::DType dtype);

/// Errors  invalid_argument: a tensor has more elements than an int can count.
void check_mpi_counts(const Layout& layout);

/// The number of elements as an int, in which MPI counts.
inline int count_of(const tutti::ConstTensorView& tensor) {
  return static_cast<int>(tensor.count());
}

/// MPI's function for the collective, out of place where there are two buffers. For pushpull: for
/// each tensor MPI_Allreduce into a replica, then a copy from there.
Call mpi_call(const Job& job, tutti::ReduceOp op, MPI_Comm comm);

// --- Tutti ---------------------------------------------------------------------------------------

/// The function of Communicator for the collective. For pushpull: a store of its own that has the
/// job's tensors, and one KVStore::pushpull of all of them, compressed as the options say.
/// Collective.
Call tutti_call(const Job& job, const Options& options, const tutti::Communicator& world);

// --- NCCL: what a program gets that calls NCCL by itself, over all ranks -------------------------

/// Errors  invalid_argument, with the reason, if this build or this machine has no NCCL. Local.
void require_nccl();

/// A communicator of NCCL, one for all sizes: making it takes longer than using it.
class NcclWorld {
 public:
  virtual ~NcclWorld() = default;

  /// ncclAllReduce (sum) of each pair of tensors, as one group, in the stream of the rank's GPU;
  /// returns when the stream has run.
  virtual Call allreduce() = 0;
};

/// Joins the ranks of `world`, which `comm` has, too. A rank without its peers gives up after
/// `timeout`. Collective over `comm`. Errors: invalid_argument, communication (NCCL's own words),
/// timeout.
std::unique_ptr<NcclWorld> join_nccl(tutti::Communicator& world, MPI_Comm comm,
                                     std::chrono::duration<double> timeout);

}  // namespace apps::benchmark
