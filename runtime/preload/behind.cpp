// SPDX-License-Identifier: Apache-2.0
// The one symbol of the part behind the preloaded library: what carries out each function.
#include "runtime/preload/collectives.hpp"
#include "runtime/preload/fortran.hpp"
#include "runtime/preload/functions.hpp"
#include "runtime/preload/process.hpp"

namespace tutti::preload {

namespace {

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
  all.Reduce = reduce;
  all.Allreduce = allreduce;
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
