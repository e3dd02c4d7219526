// SPDX-License-Identifier: Apache-2.0
//
// The functions of MPI 4 with large counts. The library carries out calls of up to 2 GiB, whose
// counts are ints. Only counts that MPI reads on this rank are looked at, since the others may have
// any value. All ranks decide alike by them, because blocks have as many bytes on each rank.
#include "runtime/preload/large.hpp"

#include <algorithm>
#include <climits>
#include <cstddef>
#include <span>
#include <vector>

#include "runtime/preload/arguments.hpp"
#include "runtime/preload/blocks.hpp"
#include "runtime/preload/collectives.hpp"

#if MPI_VERSION < 4

void tutti::preload::add_large(Functions& /*functions*/) {}

#else

// An older MPI of the same ABI has no such functions, and no program that calls them.
// NOLINTBEGIN(readability-identifier-naming): MPI's names
#define TUTTI_ROW(name, parameters, arguments) \
  extern "C" __attribute__((weak)) int PMPI_##name parameters;
TUTTI_WATCHED_LARGE(TUTTI_ROW)
TUTTI_PRELOADED_LARGE(TUTTI_ROW)
#undef TUTTI_ROW
// NOLINTEND(readability-identifier-naming)

namespace tutti::preload {

namespace {

bool fits(MPI_Count count) { return count <= INT_MAX; }

/// Converts a count that fits, or that MPI does not read.
int as_int(MPI_Count count) {
  return static_cast<int>(std::clamp(count, MPI_Count{-1}, MPI_Count{INT_MAX}));
}

/// Between two groups of ranks none of one is the root, and MPI carries the call out.
bool is_root_here(int root, MPI_Comm comm) {
  int rank = MPI_PROC_NULL;
  if (comm == MPI_COMM_NULL) return false;
  return PMPI_Comm_rank(comm, &rank) == MPI_SUCCESS && rank == root;
}

void add_reductions(Functions& all) {
  all.Reduce_c = [](const void* input, void* output, MPI_Count count, MPI_Datatype type, MPI_Op op,
                    int root, MPI_Comm comm) {
    if (!fits(count)) {
      return carry_out_by_mpi("MPI_Reduce", root, comm, [&] {
        return PMPI_Reduce_c(input, output, count, type, op, root, comm);
      });
    }
    return reduce(input, output, {as_int(count), type, op}, root, comm);
  };
  all.Allreduce_c = [](const void* input, void* output, MPI_Count count, MPI_Datatype type,
                       MPI_Op op, MPI_Comm comm) {
    if (!fits(count)) {
      return carry_out_by_mpi("MPI_Allreduce", comm, [&] {
        return PMPI_Allreduce_c(input, output, count, type, op, comm);
      });
    }
    return allreduce(input, output, {as_int(count), type, op}, comm);
  };
  all.Reduce_scatter_c = [](const void* input, void* output, const MPI_Count* counts,
                            MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    int ranks = 0;
    const bool is_known =
        counts != nullptr && comm != MPI_COMM_NULL && PMPI_Comm_size(comm, &ranks) == MPI_SUCCESS;
    const std::span<const MPI_Count> given(counts, static_cast<std::size_t>(ranks));
    if (!is_known || !std::ranges::all_of(given, fits)) {
      return carry_out_by_mpi("MPI_Reduce_scatter", comm, [&] {
        return PMPI_Reduce_scatter_c(input, output, counts, type, op, comm);
      });
    }
    std::vector<int> small(given.size());
    std::ranges::transform(given, small.begin(), as_int);
    return reduce_scatter(input, {output, small.data(), nullptr, type}, op, comm);
  };
  all.Reduce_scatter_block_c = [](const void* input, void* output, MPI_Count count,
                                  MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    if (!fits(count)) {
      return carry_out_by_mpi("MPI_Reduce_scatter_block", comm, [&] {
        return PMPI_Reduce_scatter_block_c(input, output, count, type, op, comm);
      });
    }
    return reduce_scatter_block(input, {output, as_int(count), type}, op, comm);
  };
}

void add_moves(Functions& all) {
  all.Bcast_c = [](void* buffer, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
    if (!fits(count)) {
      return carry_out_by_mpi("MPI_Bcast", root, comm,
                              [&] { return PMPI_Bcast_c(buffer, count, type, root, comm); });
    }
    return bcast(buffer, as_int(count), type, root, comm);
  };
  all.Allgather_c = [](const void* input, MPI_Count given, MPI_Datatype given_type, void* output,
                       MPI_Count count, MPI_Datatype type, MPI_Comm comm) {
    if (!fits(count) || (input != MPI_IN_PLACE && !fits(given))) {
      return carry_out_by_mpi("MPI_Allgather", comm, [&] {
        return PMPI_Allgather_c(input, given, given_type, output, count, type, comm);
      });
    }
    return allgather({input, as_int(given), given_type}, {output, as_int(count), type}, comm);
  };
  all.Alltoall_c = [](const void* input, MPI_Count given, MPI_Datatype given_type, void* output,
                      MPI_Count count, MPI_Datatype type, MPI_Comm comm) {
    if (!fits(count) || (input != MPI_IN_PLACE && !fits(given))) {
      return carry_out_by_mpi("MPI_Alltoall", comm, [&] {
        return PMPI_Alltoall_c(input, given, given_type, output, count, type, comm);
      });
    }
    return alltoall({input, as_int(given), given_type}, {output, as_int(count), type}, comm);
  };
  all.Gather_c = [](const void* input, MPI_Count given, MPI_Datatype given_type, void* output,
                    MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
    const bool is_root = root < 0 || is_root_here(root, comm);
    if ((input != MPI_IN_PLACE && !fits(given)) || (is_root && !fits(count))) {
      return carry_out_by_mpi("MPI_Gather", root, comm, [&] {
        return PMPI_Gather_c(input, given, given_type, output, count, type, root, comm);
      });
    }
    return gather({input, as_int(given), given_type}, {output, as_int(count), type}, root, comm);
  };
  all.Scatter_c = [](const void* input, MPI_Count given, MPI_Datatype given_type, void* output,
                     MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
    const bool is_root = root < 0 || is_root_here(root, comm);
    if ((output != MPI_IN_PLACE && !fits(count)) || (is_root && !fits(given))) {
      return carry_out_by_mpi("MPI_Scatter", root, comm, [&] {
        return PMPI_Scatter_c(input, given, given_type, output, count, type, root, comm);
      });
    }
    return scatter({input, as_int(given), given_type}, {output, as_int(count), type}, root, comm);
  };
}

}  // namespace

void add_large(Functions& all) {
  add_reductions(all);
  add_moves(all);
#define TUTTI_ROW(name, parameters, arguments)                                          \
  all.name = [] parameters {                                                            \
    return carry_out_by_mpi("MPI_" #name, comm, [&] { return PMPI_##name arguments; }); \
  };
  TUTTI_WATCHED_LARGE(TUTTI_ROW)
#undef TUTTI_ROW
}

}  // namespace tutti::preload

#endif
