// SPDX-License-Identifier: Apache-2.0
// Collectives of MPI in which each rank has a block of its own. Each is taken by the library or
// left to MPI, on all ranks alike: by the bytes of a block, which ranks may describe by different
// datatypes, or by the counts, the datatype and the operation, where all ranks give them alike.
#pragma once

#include <mpi.h>

namespace tutti::preload {

/// What a rank gives, or MPI_IN_PLACE; and where it receives. Counts are of one block.
struct Source {
  const void* buffer;
  int count;
  MPI_Datatype type;
};
struct Target {
  void* buffer;
  int count;
  MPI_Datatype type;
};
/// Of each rank's block; `places` is null where they lie one after the other.
struct TargetOfMany {
  void* buffer;
  const int* counts;
  const int* places;
  MPI_Datatype type;
};

int allgather(const Source& from, const Target& to, MPI_Comm comm);
int allgatherv(const Source& from, const TargetOfMany& to, MPI_Comm comm);
int gather(const Source& from, const Target& to, int root, MPI_Comm comm);
int scatter(const Source& from, const Target& to, int root, MPI_Comm comm);
int alltoall(const Source& from, const Target& to, MPI_Comm comm);
int reduce_scatter(const void* input, const TargetOfMany& to, MPI_Op op, MPI_Comm comm);
int reduce_scatter_block(const void* input, const Target& to, MPI_Op op, MPI_Comm comm);

}  // namespace tutti::preload
