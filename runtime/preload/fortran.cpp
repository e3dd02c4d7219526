// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/fortran.hpp"

#include "runtime/preload/collectives.hpp"
#include "runtime/preload/process.hpp"

#ifdef OMPI_MAJOR_VERSION
// The addresses of these are Fortran's constants. A process without Fortran has no such variables.
extern "C" __attribute__((weak)) int mpi_fortran_in_place_;
extern "C" __attribute__((weak)) int mpi_fortran_bottom_;
#endif

namespace tutti::preload {

namespace {

/// Fortran's MPI_IN_PLACE and MPI_BOTTOM are not those of C.
void* in_c(void* buffer) {
#ifdef OMPI_MAJOR_VERSION
  if (buffer == &mpi_fortran_in_place_) return MPI_IN_PLACE;
  if (buffer == &mpi_fortran_bottom_) return MPI_BOTTOM;
#endif
  return buffer;
}

void set(MPI_Fint* error, int code) {
  if (error != nullptr) *error = code;
}

}  // namespace

void add_fortran(Functions& all) {
  all.init_f = [](MPI_Fint* error) {
    const int code = PMPI_Init(nullptr, nullptr);
    if (code == MPI_SUCCESS) begin();
    set(error, code);
  };
  all.init_thread_f = [](MPI_Fint* required, MPI_Fint* provided, MPI_Fint* error) {
    int level = 0;
    const int code = PMPI_Init_thread(nullptr, nullptr, *required, &level);
    *provided = level;
    if (code == MPI_SUCCESS) begin();
    set(error, code);
  };
  all.finalize_f = [](MPI_Fint* error) {
    end();
    set(error, PMPI_Finalize());
  };
  all.barrier_f = [](MPI_Fint* comm, MPI_Fint* error) {
    set(error, barrier(PMPI_Comm_f2c(*comm)));
  };
  all.bcast_f = [](void* buffer, MPI_Fint* count, MPI_Fint* type, MPI_Fint* root, MPI_Fint* comm,
                   MPI_Fint* error) {
    set(error, bcast(in_c(buffer), *count, PMPI_Type_f2c(*type), *root, PMPI_Comm_f2c(*comm)));
  };
  all.reduce_f = [](void* input, void* output, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op,
                    MPI_Fint* root, MPI_Fint* comm, MPI_Fint* error) {
    set(error, reduce(in_c(input), in_c(output), *count, PMPI_Type_f2c(*type), PMPI_Op_f2c(*op),
                      *root, PMPI_Comm_f2c(*comm)));
  };
  all.allreduce_f = [](void* input, void* output, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op,
                       MPI_Fint* comm, MPI_Fint* error) {
    set(error, allreduce(in_c(input), in_c(output), *count, PMPI_Type_f2c(*type), PMPI_Op_f2c(*op),
                         PMPI_Comm_f2c(*comm)));
  };
}

}  // namespace tutti::preload
