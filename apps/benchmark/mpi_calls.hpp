// SPDX-License-Identifier: Apache-2.0
// MPI for the program's own messages and as the backend to compare with.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tutti/communicator.hpp>
#include <tutti/mpi.hpp>

#include "apps/benchmark/work.hpp"

namespace apps::benchmark {

/// Throws Error(communication, "MPI_Bcast: ...") unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

/// Element by element over all ranks; every rank has the result. Collective.
void max_over_ranks(MPI_Comm comm, std::span<double> values);
std::uint64_t sum_over_ranks(MPI_Comm comm, std::uint64_t value);
/// Every rank's number, in the order of ranks. Collective.
std::vector<double> gather(MPI_Comm comm, double value);
/// Rank `root`'s text, on every rank. Collective.
std::string text_of_rank(MPI_Comm comm, std::string text, int root);

/// False for operations on 16-bit floating point: MPI has no such types. It can move them.
bool mpi_can_run(const Case& chosen, tutti::DType dtype);

/// Errors  invalid_argument: a tensor has more elements than an int can count.
void check_mpi_counts(const Layout& layout);

/// MPI's function for the collective, out of place where there are two buffers. For pushpull: for
/// each tensor MPI_Allreduce into a replica, then a copy from there.
Call mpi_call(const Job& job, tutti::ReduceOp op, MPI_Comm comm);

}  // namespace apps::benchmark
