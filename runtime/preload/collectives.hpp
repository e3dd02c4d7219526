// SPDX-License-Identifier: Apache-2.0
// MPI's collectives as a program calls them. Each is taken by the library or left to MPI, on all
// ranks of the communicator alike: by what MPI's standard makes equal on them.
#pragma once

#include <mpi.h>

namespace tutti::preload {

int barrier(MPI_Comm comm);
int bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm);
/// The elements that are reduced.
struct Elements {
  int count;
  MPI_Datatype type;
  MPI_Op op;
};
int reduce(const void* input, void* output, const Elements& all, int root, MPI_Comm comm);
int allreduce(const void* input, void* output, const Elements& all, MPI_Comm comm);

}  // namespace tutti::preload
