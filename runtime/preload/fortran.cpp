// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/fortran.hpp"

#include <dlfcn.h>
#include <link.h>
#include <string_view>
#include <type_traits>

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

/// One of MPI's own functions that start a message. They know Fortran's constants.
using Start = void(void*, MPI_Fint*, MPI_Fint*, MPI_Fint*, MPI_Fint*, MPI_Fint*, MPI_Fint*,
                   MPI_Fint*);

using Recv = std::remove_pointer_t<decltype(Functions::recv_f)>;

void add_fortran_sends(Functions& all) {
#define TUTTI_SEND(name, NAME)                                                                    \
  all.name##_f = [](void* buffer, MPI_Fint* count, MPI_Fint* type, MPI_Fint* dest, MPI_Fint* tag, \
                    MPI_Fint* comm, MPI_Fint* error) {                                            \
    using Send = std::remove_pointer_t<decltype(all.name##_f)>;                                   \
    static auto* const own = own_fortran<Send>("pmpi_" #name "_");                                \
    static auto* const start = own_fortran<Start>("pmpi_i" #name "_");                            \
    const ShownCall shown("MPI_" #NAME,                                                           \
                          {.dest = dest, .given_tag = tag, .comm = PMPI_Comm_f2c(*comm)});        \
    if (!shown.has_askers()) return own(buffer, count, type, dest, tag, comm, error);             \
    MPI_Fint sent = 0;                                                                            \
    MPI_Fint code = MPI_SUCCESS;                                                                  \
    start(buffer, count, type, dest, tag, comm, &sent, &code);                                    \
    set(error, code == MPI_SUCCESS ? shown.complete(PMPI_Request_f2c(sent)) : code);              \
  };
  TUTTI_SEND(send, SEND)
  TUTTI_SEND(ssend, SSEND)
#undef TUTTI_SEND
}

void add_fortran_receives(Functions& all) {
  all.recv_f = [](void* buffer, MPI_Fint* count, MPI_Fint* type, MPI_Fint* source, MPI_Fint* tag,
                  MPI_Fint* comm, MPI_Fint* status, MPI_Fint* error) {
    static auto* const own = own_fortran<Recv>("pmpi_recv_");
    const ShownCall shown("MPI_RECV", {.source = source, .tag = tag, .comm = PMPI_Comm_f2c(*comm)});
    MPI_Fint none = MPI_PROC_NULL;
    MPI_Fint code = MPI_SUCCESS;
    if (shown.has_askers()) {  // see messages.cpp
      own(buffer, count, type, &none, tag, comm, status, &code);
      if (code == MPI_SUCCESS) code = shown.probe().code;
    }
    if (code == MPI_SUCCESS) own(buffer, count, type, source, tag, comm, status, &code);
    set(error, code);
  };
  all.sendrecv_f = [](void* given, MPI_Fint* given_count, MPI_Fint* given_type, MPI_Fint* dest,
                      MPI_Fint* given_tag, void* buffer, MPI_Fint* count, MPI_Fint* type,
                      MPI_Fint* source, MPI_Fint* tag, MPI_Fint* comm, MPI_Fint* status,
                      MPI_Fint* error) {
    using Sendrecv = std::remove_pointer_t<decltype(all.sendrecv_f)>;
    static auto* const own = own_fortran<Sendrecv>("pmpi_sendrecv_");
    static auto* const isend = own_fortran<Start>("pmpi_isend_");
    static auto* const recv = own_fortran<Recv>("pmpi_recv_");
    const ShownCall shown("MPI_SENDRECV", {.dest = dest,
                                           .given_tag = given_tag,
                                           .source = source,
                                           .tag = tag,
                                           .comm = PMPI_Comm_f2c(*comm)});
    if (!shown.has_askers()) {
      return own(given, given_count, given_type, dest, given_tag, buffer, count, type, source, tag,
                 comm, status, error);
    }
    MPI_Fint none = MPI_PROC_NULL;
    MPI_Fint sent = 0;
    MPI_Fint code = MPI_SUCCESS;
    Look found;
    recv(buffer, count, type, &none, tag, comm, status, &code);
    if (code == MPI_SUCCESS) {
      found = shown.look();
      code = found.code;
    }
    if (code == MPI_SUCCESS) {
      isend(given, given_count, given_type, dest, given_tag, comm, &sent, &code);
    }
    if (code == MPI_SUCCESS && found.flag == 0) code = shown.probe().code;
    if (code != MPI_SUCCESS) return set(error, code);
    recv(buffer, count, type, source, tag, comm, status, &code);
    const int code_of_send = shown.complete(PMPI_Request_f2c(sent));
    set(error, code == MPI_SUCCESS ? code_of_send : code);
  };
}

void add_fortran_messages(Functions& all) {
#define TUTTI_ROW(name, NAME, parameters, arguments, ...)                     \
  all.name##_f = [] parameters {                                              \
    static auto* const own = own_fortran<void parameters>("pmpi_" #name "_"); \
    own arguments;                                                            \
  };
  TUTTI_MESSAGES_FORTRAN(TUTTI_ROW)
  TUTTI_TESTED_FORTRAN(TUTTI_ROW)
#undef TUTTI_ROW
  if (!has_deadline()) return;
#define TUTTI_ROW(name, NAME, parameters, arguments, ...)                     \
  all.name##_f = [] parameters {                                              \
    static auto* const own = own_fortran<void parameters>("pmpi_" #name "_"); \
    const ShownCall shown("MPI_" #NAME, {__VA_ARGS__});                       \
    own arguments;                                                            \
  };
  TUTTI_MESSAGES_FORTRAN(TUTTI_ROW)
#undef TUTTI_ROW
#define TUTTI_ROW(name, NAME, parameters, arguments, test, test_arguments, done, ...)     \
  all.name##_f = [] parameters {                                                          \
    static auto* const own = own_fortran<void parameters>("pmpi_" #name "_");             \
    static void* const own_test = own_fortran<void>("pmpi_" #test "_");                   \
    const ShownCall shown("MPI_" #NAME, {__VA_ARGS__});                                   \
    if (!shown.has_askers()) return own arguments;                                        \
    MPI_Fint code = MPI_SUCCESS;                                                          \
    const auto polled = [&](auto*... all_arguments) {                                     \
      reinterpret_cast<void (*)(decltype(all_arguments)...)>(own_test)(all_arguments...); \
    };                                                                                    \
    shown.poll([&] {                                                                      \
      [[maybe_unused]] MPI_Fint is_done = kUntouched;                                     \
      polled test_arguments;                                                              \
      return code != MPI_SUCCESS || (done) != 0;                                          \
    });                                                                                   \
    set(error, code);                                                                     \
  };
  TUTTI_TESTED_FORTRAN(TUTTI_ROW)
#undef TUTTI_ROW
  add_fortran_sends(all);
  add_fortran_receives(all);
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
