// SPDX-License-Identifier: Apache-2.0
// The library that LD_PRELOAD names. It has the names of MPI's functions and nothing else, because
// every process of a job loads it, also the shells and the launcher: it needs the C library alone.
//
//   program --MPI_Allreduce--> this --> libtutti-preload-<abi>.so --PMPI_Allreduce--> MPI
//
// The part behind it is loaded in the first call, when the program's MPI is in the process, also
// where that came by dlopen() (mpi4py). Where it cannot be loaded, calls go to the MPI.
#include <atomic>
#include <bit>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fnmatch.h>
#include <link.h>
#include <mpi.h>
#include <pthread.h>
#include <type_traits>

// A handle of MPI as wide as that of any: one MPI's are pointers, another's are integers, and calls
// of a program of another kind of MPI are passed on whole.
using AnyHandle = void*;
#define MPI_Comm AnyHandle
#define MPI_Datatype AnyHandle
#define MPI_Op AnyHandle
#define MPI_Group AnyHandle
#define MPI_Info AnyHandle
#define MPI_Win AnyHandle
#include "runtime/preload/functions.hpp"

namespace tutti::preload {

namespace {

constexpr std::size_t kPathBytes = 4096;

constinit std::atomic<const Functions*> chosen{nullptr};

/// Patterns of the names that libraries of this library's MPI have.
constexpr const char* kNames[] = {TUTTI_PRELOAD_LIBRARIES};

const char* file_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

bool begins_with(const char* text, const char* start) {
  return std::strncmp(text, start, std::strlen(start)) == 0;
}

/// The files of this process that an MPI consists of, and the names that they give themselves.
struct Files {
  static constexpr std::size_t kMost = 16;
  std::size_t count = 0;
  char paths[kMost][kPathBytes];
  const char* names[kMost];
};

/// The name that a library has from its linker, whatever its file is called: DT_SONAME. Null if it
/// has none.
const char* name_of(const dl_phdr_info& info) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const ElfW(Addr) begin = info.dlpi_addr + info.dlpi_phdr[i].p_vaddr;
    const auto* entry = std::bit_cast<const ElfW(Dyn)*>(begin);
    ElfW(Addr) texts = 0;
    ElfW(Addr) name = 0;
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_STRTAB) texts = entry->d_un.d_ptr;
      if (entry->d_tag == DT_SONAME) name = entry->d_un.d_val;
    }
    if (texts == 0 || name == 0) return nullptr;
    if (texts < info.dlpi_addr) texts += info.dlpi_addr;  // not every C library has added it
    return std::bit_cast<const char*>(texts + name);
  }
  return nullptr;
}

int collect(dl_phdr_info* info, std::size_t /*size*/, void* to) {
  auto& files = *static_cast<Files*>(to);
  const char* path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  if (begins_with(file_name(path), "libmpi") && files.count < Files::kMost) {
    files.names[files.count] = name_of(*info);
    std::snprintf(files.paths[files.count++], kPathBytes, "%s", path);
  }
  return 0;
}

/// Opens them for all that is loaded later, as the part behind needs it: they may have come with a
/// module of Python's, for that alone. True if they are of this library's kind of MPI.
bool open_mpi_for_all() {
  static constinit Files files{};  // large for a stack
  files.count = 0;
  dl_iterate_phdr(collect, &files);
  bool is_expected = false;
  for (std::size_t i = 0; i < files.count; ++i) {
    // mpi4py opens "libmpi.so", which is a link to the file whose name tells its kind, or a copy.
    const char* name = files.names[i] == nullptr ? file_name(files.paths[i]) : files.names[i];
    for (const char* expected : kNames) {
      is_expected = is_expected || fnmatch(expected, name, 0) == 0;
    }
    dlopen(files.paths[i], RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
  }
  return is_expected;
}

void say(const char* what, const char* why) {
  std::fprintf(stderr,
               "tutti: warning: the preloaded library leaves this program's collectives to its "
               "MPI: %s%s\n",
               what, why);
}

/// The file of the part behind, in a folder beside this library.
const char* path_behind() {
  static char path[kPathBytes + sizeof TUTTI_PRELOAD_BEHIND];
  Dl_info own{};
  dladdr(reinterpret_cast<const void*>(&path_behind), &own);
  const char* file = own.dli_fname == nullptr ? "" : own.dli_fname;
  static char whole[PATH_MAX];
  if (realpath(file, whole) != nullptr) file = whole;
  std::snprintf(path, sizeof path, "%.*s%s", static_cast<int>(file_name(file) - file), file,
                TUTTI_PRELOAD_BEHIND);
  return path;
}

/// Null, after a word to the user, where there is none for this process.
const Functions* load_behind() {
  const char* path = path_behind();
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* why = dlerror();
    say("", why == nullptr ? path : why);
    return nullptr;
  }
  auto* ask = reinterpret_cast<BehindFunction*>(dlsym(library, kBehindSymbol));
  const Behind* behind = ask == nullptr ? nullptr : ask();
  if (behind != nullptr && std::strcmp(behind->version, TUTTI_VERSION) == 0) {
    return &behind->functions;
  }
  say("another version of Tutti has left ", path);
  return nullptr;
}

template <class Function>
void find(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// The MPI's own of C, whichever it is: arguments are passed on as they came. Those of Fortran are
/// null, see fortran_of_mpi().
const Functions* functions_of_mpi() {
  static constinit Functions functions{};
#define TUTTI_ROW(name, parameters, arguments, ...) find(functions.name, "PMPI_" #name);
  TUTTI_PRELOADED_C(TUTTI_ROW)
#undef TUTTI_ROW
  return &functions;
}

/// The MPI's own function of Fortran, by its name in Open MPI or in the module mpi_f08 of MPICH's,
/// whose libraries may have come after the first call of MPI, for a module of Python's alone.
template <class Function>
Function* fortran_of_mpi(const char* name, const char* f08_of_openmpi, const char* f08_of_mpich) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);
  open_mpi_for_all();
  pthread_mutex_unlock(&mutex);
  Function* function = nullptr;
  for (const char* known : {name, f08_of_openmpi, f08_of_mpich}) {
    if (function == nullptr) find(function, known);
  }
  return function;
}

void choose() {
  const bool is_expected = open_mpi_for_all();
  if (!is_expected) say("that is another kind of MPI than ", TUTTI_PRELOAD_ABI);
  const Functions* functions = is_expected ? load_behind() : nullptr;
  chosen.store(functions != nullptr ? functions : functions_of_mpi(), std::memory_order_release);
}

const Functions& functions() {
  if (const Functions* known = chosen.load(std::memory_order_acquire)) return *known;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, choose);
  return *chosen.load(std::memory_order_acquire);
}

}  // namespace

}  // namespace tutti::preload

// The compilers of Fortran have four ways to write a name, and the module mpi_f08 has its own: that
// of Open MPI calls a fifth, but for functions with arguments of the type LOGICAL.
// NOLINTBEGIN(readability-identifier-naming, readability-function-size, clang-diagnostic-*)
#define TUTTI_EXPORT extern "C" __attribute__((visibility("default")))
#define TUTTI_ALIAS(name) __attribute__((visibility("default"), alias(name)))
#define TUTTI_ROW(name, parameters, arguments, ...)                       \
  TUTTI_EXPORT int tutti_preload_##name parameters __asm__("MPI_" #name); \
  int tutti_preload_##name parameters { return tutti::preload::functions().name arguments; }
TUTTI_PRELOADED_C(TUTTI_ROW)
#undef TUTTI_ROW
#define TUTTI_CALL_FORTRAN(name, arguments)                                  \
  auto* function = tutti::preload::functions().name##_f;                     \
  if (function == nullptr) {                                                 \
    using Function = std::remove_pointer_t<decltype(function)>;              \
    static constinit std::atomic<Function*> found{nullptr};                  \
    function = found.load(std::memory_order_acquire);                        \
    if (function == nullptr) {                                               \
      function = tutti::preload::fortran_of_mpi<Function>(                   \
          "pmpi_" #name "_", "pmpi_" #name "_f08_", "pmpir_" #name "_f08_"); \
      found.store(function, std::memory_order_release);                      \
    }                                                                        \
  }                                                                          \
  function arguments;
#ifdef OMPI_MAJOR_VERSION
#define TUTTI_ROW(name, NAME, parameters, arguments, ...)                            \
  TUTTI_EXPORT void mpi_##name##_ parameters { TUTTI_CALL_FORTRAN(name, arguments) } \
  extern "C" void mpi_##name parameters TUTTI_ALIAS("mpi_" #name "_");               \
  extern "C" void mpi_##name##__ parameters TUTTI_ALIAS("mpi_" #name "_");           \
  extern "C" void MPI_##NAME parameters TUTTI_ALIAS("mpi_" #name "_");               \
  extern "C" void ompi_##name##_f parameters TUTTI_ALIAS("mpi_" #name "_");
TUTTI_PRELOADED_FORTRAN(TUTTI_ROW)
extern "C" decltype(mpi_cart_create_) mpi_cart_create_f08_ TUTTI_ALIAS("mpi_cart_create_");
extern "C" decltype(mpi_cart_sub_) mpi_cart_sub_f08_ TUTTI_ALIAS("mpi_cart_sub_");
#else
#define TUTTI_ROW(name, NAME, parameters, arguments, ...) \
  TUTTI_EXPORT void mpi_##name##_f08_ parameters { TUTTI_CALL_FORTRAN(name, arguments) }
TUTTI_PRELOADED_FORTRAN(TUTTI_ROW)
#endif
#undef TUTTI_ROW
// NOLINTEND(readability-identifier-naming, readability-function-size, clang-diagnostic-*)
