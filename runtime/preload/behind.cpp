// SPDX-License-Identifier: Apache-2.0
// The one symbol of the part behind the preloaded library: what carries out each function.
#include "runtime/preload/arguments.hpp"
#include "runtime/preload/blocks.hpp"
#include "runtime/preload/collectives.hpp"
#include "runtime/preload/fortran.hpp"
#include "runtime/preload/functions.hpp"
#include "runtime/preload/large.hpp"
#include "runtime/preload/messages.hpp"
#include "runtime/preload/process.hpp"

namespace tutti::preload {

namespace {

void add_blocks(Functions& all) {
  all.Reduce_scatter = [](const void* input, void* output, const int* counts, MPI_Datatype type,
                          MPI_Op op, MPI_Comm comm) {
    return reduce_scatter(input, {output, counts, nullptr, type}, op, comm);
  };
  all.Reduce_scatter_block = [](const void* input, void* output, int count, MPI_Datatype type,
                                MPI_Op op, MPI_Comm comm) {
    return reduce_scatter_block(input, {output, count, type}, op, comm);
  };
  all.Allgather = [](const void* input, int given, MPI_Datatype given_type, void* output, int count,
                     MPI_Datatype type, MPI_Comm comm) {
    return allgather({input, given, given_type}, {output, count, type}, comm);
  };
  all.Allgatherv = [](const void* input, int given, MPI_Datatype given_type, void* output,
                      const int* counts, const int* places, MPI_Datatype type, MPI_Comm comm) {
    return allgatherv({input, given, given_type}, {output, counts, places, type}, comm);
  };
  all.Gather = [](const void* input, int given, MPI_Datatype given_type, void* output, int count,
                  MPI_Datatype type, int root, MPI_Comm comm) {
    return gather({input, given, given_type}, {output, count, type}, root, comm);
  };
  all.Scatter = [](const void* input, int given, MPI_Datatype given_type, void* output, int count,
                   MPI_Datatype type, int root, MPI_Comm comm) {
    return scatter({input, given, given_type}, {output, count, type}, root, comm);
  };
  all.Alltoall = [](const void* input, int given, MPI_Datatype given_type, void* output, int count,
                    MPI_Datatype type, MPI_Comm comm) {
    return alltoall({input, given, given_type}, {output, count, type}, comm);
  };
}

void add_watched(Functions& all) {
#define TUTTI_ROW(name, parameters, arguments)                                          \
  all.name = [] parameters {                                                            \
    return carry_out_by_mpi("MPI_" #name, comm, [&] { return PMPI_##name arguments; }); \
  };
  TUTTI_WATCHED_C(TUTTI_ROW)
#undef TUTTI_ROW
}

Behind make() {
  Behind behind{TUTTI_VERSION, {}};
  Functions& all = behind.functions;
  all.Init = [](int* argc, char*** argv) {
    const int code = PMPI_Init(argc, argv);
    if (code == MPI_SUCCESS) begin();
    return code;
  };
  all.Init_thread = [](int* argc, char*** argv, int required, int* provided) {
    const int code = PMPI_Init_thread(argc, argv, required, provided);
    if (code == MPI_SUCCESS) begin();
    return code;
  };
  all.Finalize = [] {
    end();
    return PMPI_Finalize();
  };
  all.Barrier = barrier;
  all.Bcast = bcast;
  all.Reduce = [](const void* input, void* output, int count, MPI_Datatype type, MPI_Op op,
                  int root, MPI_Comm comm) {
    return reduce(input, output, {count, type, op}, root, comm);
  };
  all.Allreduce = [](const void* input, void* output, int count, MPI_Datatype type, MPI_Op op,
                     MPI_Comm comm) {
    return allreduce(input, output, {count, type, op}, comm);
  };
  add_blocks(all);
  add_watched(all);
  add_messages(all);
  add_large(all);
  add_fortran(all);
  return behind;
}

}  // namespace

}  // namespace tutti::preload

extern "C" __attribute__((visibility("default"))) const tutti::preload::Behind*
tutti_preload() noexcept {
  static const tutti::preload::Behind behind = tutti::preload::make();
  return &behind;
}
