// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/fortran.hpp"

#include <dlfcn.h>
#include <link.h>
#include <string_view>

#include "runtime/preload/arguments.hpp"
#include "runtime/preload/blocks.hpp"
#include "runtime/preload/collectives.hpp"
#include "runtime/preload/messages.hpp"
#include "runtime/preload/process.hpp"

#if !defined(OMPI_MAJOR_VERSION) && !defined(MPICH_NUMVERSION)

void tutti::preload::add_fortran(Functions& /*functions*/) {}

#else

namespace tutti::preload {

namespace {

void set(MPI_Fint* error, int code) {
  if (error != nullptr) *error = code;
}

/// Opens the libraries of MPI, for all that look for their functions.
int open_for_all(dl_phdr_info* info, std::size_t /*size*/, void* /*data*/) {
  const std::string_view path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  if (path.substr(path.rfind('/') + 1).starts_with("libmpi")) {
    dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
  }
  return 0;
}

/// The MPI's own function of Fortran, in a call of it: its library may have come after the first
/// call of MPI, and for a module of Python's alone.
template <class Function>
Function* own_fortran(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) {
    dl_iterate_phdr(open_for_all, nullptr);
    found = dlsym(RTLD_DEFAULT, name);
  }
  return reinterpret_cast<Function*>(found);
}

}  // namespace

}  // namespace tutti::preload

#ifndef OMPI_MAJOR_VERSION

namespace tutti::preload {

namespace {

/// Releases of MPICH name the functions behind the module differently.
template <class Function>
Function* own_f08(const char* name, const char* other_name) {
  Function* own = own_fortran<Function>(name);
  return own == nullptr ? own_fortran<Function>(other_name) : own;
}

}  // namespace

/// Those of the module mpi_f08 that go past the functions of C.
void add_fortran(Functions& all) {
  all.init_f = [](MPI_Fint* error) {
    static auto* const own = own_f08<void(MPI_Fint*)>("pmpir_init_f08_", "pmpi_init_f08_");
    MPI_Fint code = MPI_SUCCESS;
    if (own == nullptr) {
      code = PMPI_Init(nullptr, nullptr);
    } else {
      own(&code);
    }
    if (code == MPI_SUCCESS) begin();
    set(error, code);
  };
  all.init_thread_f = [](MPI_Fint* required, MPI_Fint* provided, MPI_Fint* error) {
    using Function = void(MPI_Fint*, MPI_Fint*, MPI_Fint*);
    static auto* const own = own_f08<Function>("pmpir_init_thread_f08_", "pmpi_init_thread_f08_");
    MPI_Fint code = MPI_SUCCESS;
    if (own == nullptr) {
      code = PMPI_Init_thread(nullptr, nullptr, *required, provided);
    } else {
      own(required, provided, &code);
    }
    if (code == MPI_SUCCESS) begin();
    set(error, code);
  };
  all.finalize_f = [](MPI_Fint* error) {
    static auto* const own = own_f08<void(MPI_Fint*)>("pmpir_finalize_f08_", "pmpi_finalize_f08_");
    end();
    if (own == nullptr) return set(error, PMPI_Finalize());
    own(error);
  };
  all.barrier_f = [](MPI_Fint* comm, MPI_Fint* error) { set(error, barrier(MPI_Comm_f2c(*comm))); };
}

}  // namespace tutti::preload

#else

// The addresses of these are Fortran's constants. A process without Fortran has no such variables.
// NOLINTBEGIN(readability-identifier-naming): Open MPI's names
extern "C" __attribute__((weak)) int mpi_fortran_in_place_;
extern "C" __attribute__((weak)) int mpi_fortran_bottom_;
// NOLINTEND(readability-identifier-naming)

namespace tutti::preload {

namespace {

static_assert(sizeof(MPI_Fint) == sizeof(int));  // arrays are passed on as they are

/// Fortran's MPI_IN_PLACE and MPI_BOTTOM are not those of C.
void* in_c(void* buffer) {
  if (buffer == &mpi_fortran_in_place_) return MPI_IN_PLACE;
  if (buffer == &mpi_fortran_bottom_) return MPI_BOTTOM;
  return buffer;
}

Source source(void* buffer, const MPI_Fint* count, const MPI_Fint* type) {
  return {in_c(buffer), *count, PMPI_Type_f2c(*type)};
}
Target target(void* buffer, const MPI_Fint* count, const MPI_Fint* type) {
  return {in_c(buffer), *count, PMPI_Type_f2c(*type)};
}

void add_fortran_blocks(Functions& all) {
  all.reduce_scatter_f = [](void* input, void* output, MPI_Fint* counts, MPI_Fint* type,
                            MPI_Fint* op, MPI_Fint* comm, MPI_Fint* error) {
    set(error, reduce_scatter(in_c(input), {in_c(output), counts, nullptr, PMPI_Type_f2c(*type)},
                              PMPI_Op_f2c(*op), PMPI_Comm_f2c(*comm)));
  };
  all.reduce_scatter_block_f = [](void* input, void* output, MPI_Fint* count, MPI_Fint* type,
                                  MPI_Fint* op, MPI_Fint* comm, MPI_Fint* error) {
    set(error, reduce_scatter_block(in_c(input), {in_c(output), *count, PMPI_Type_f2c(*type)},
                                    PMPI_Op_f2c(*op), PMPI_Comm_f2c(*comm)));
  };
  all.allgather_f = [](void* input, MPI_Fint* given, MPI_Fint* given_type, void* output,
                       MPI_Fint* count, MPI_Fint* type, MPI_Fint* comm, MPI_Fint* error) {
    set(error, allgather(source(input, given, given_type), target(output, count, type),
                         PMPI_Comm_f2c(*comm)));
  };
  all.allgatherv_f = [](void* input, MPI_Fint* given, MPI_Fint* given_type, void* output,
                        MPI_Fint* counts, MPI_Fint* places, MPI_Fint* type, MPI_Fint* comm,
                        MPI_Fint* error) {
    set(error,
        allgatherv(source(input, given, given_type),
                   {in_c(output), counts, places, PMPI_Type_f2c(*type)}, PMPI_Comm_f2c(*comm)));
  };
  all.gather_f = [](void* input, MPI_Fint* given, MPI_Fint* given_type, void* output,
                    MPI_Fint* count, MPI_Fint* type, MPI_Fint* root, MPI_Fint* comm,
                    MPI_Fint* error) {
    set(error, gather(source(input, given, given_type), target(output, count, type), *root,
                      PMPI_Comm_f2c(*comm)));
  };
  all.scatter_f = [](void* input, MPI_Fint* given, MPI_Fint* given_type, void* output,
                     MPI_Fint* count, MPI_Fint* type, MPI_Fint* root, MPI_Fint* comm,
                     MPI_Fint* error) {
    set(error, scatter(source(input, given, given_type), target(output, count, type), *root,
                       PMPI_Comm_f2c(*comm)));
  };
  all.alltoall_f = [](void* input, MPI_Fint* given, MPI_Fint* given_type, void* output,
                      MPI_Fint* count, MPI_Fint* type, MPI_Fint* comm, MPI_Fint* error) {
    set(error, alltoall(source(input, given, given_type), target(output, count, type),
                        PMPI_Comm_f2c(*comm)));
  };
}

/// The MPI's own take the arguments as they are.
void add_fortran_watched(Functions& all) {
#define TUTTI_ROW(name, NAME, parameters, arguments)                          \
  all.name##_f = [] parameters {                                              \
    static auto* const own = own_fortran<void parameters>("pmpi_" #name "_"); \
    const auto by_mpi = [&] {                                                 \
      own arguments;                                                          \
      return error == nullptr ? MPI_SUCCESS : *error;                         \
    };                                                                        \
    set(error, carry_out_by_mpi("MPI_" #NAME, PMPI_Comm_f2c(*comm), by_mpi)); \
  };
  TUTTI_WATCHED_FORTRAN(TUTTI_ROW)
#undef TUTTI_ROW
}

void add_fortran_messages(Functions& all) {
  const bool is_shown = has_deadline();
#define TUTTI_ROW(name, NAME, parameters, arguments, ...)                       \
  all.name##_f = [] parameters {                                                \
    static auto* const own = own_fortran<void parameters>("pmpi_" #name "_");   \
    own arguments;                                                              \
  };                                                                            \
  if (is_shown) {                                                               \
    all.name##_f = [] parameters {                                              \
      static auto* const own = own_fortran<void parameters>("pmpi_" #name "_"); \
      const ShownCall shown("MPI_" #NAME, {__VA_ARGS__});                       \
      own arguments;                                                            \
    };                                                                          \
  }
  TUTTI_MESSAGES_FORTRAN(TUTTI_ROW)
#undef TUTTI_ROW
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
    set(error, reduce(in_c(input), in_c(output), {*count, PMPI_Type_f2c(*type), PMPI_Op_f2c(*op)},
                      *root, PMPI_Comm_f2c(*comm)));
  };
  all.allreduce_f = [](void* input, void* output, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op,
                       MPI_Fint* comm, MPI_Fint* error) {
    set(error, allreduce(in_c(input), in_c(output),
                         {*count, PMPI_Type_f2c(*type), PMPI_Op_f2c(*op)}, PMPI_Comm_f2c(*comm)));
  };
  add_fortran_blocks(all);
  add_fortran_watched(all);
  add_fortran_messages(all);
}

}  // namespace tutti::preload

#endif

#endif
