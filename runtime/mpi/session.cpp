// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/session.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include "tutti/error.hpp"
#include "tutti/launch.hpp"
#include "tutti/mpi.hpp"

namespace tutti::mpi {

namespace {

/// The process that MPI belongs to, from the first store on; 0: there was none. A process that it
/// forks inherits MPI's state and exit handlers, and may use neither.
std::atomic<pid_t>& owner() noexcept {
  static std::atomic<pid_t> owner{0};
  return owner;
}

void require_own_process() {
  pid_t nobody = 0;
  const pid_t own = getpid();
  if (owner().compare_exchange_strong(nobody, own) || nobody == own) return;
  throw Error(ErrorCode::invalid_argument,
              "this process (pid " + std::to_string(own) + ") was forked by a rank (pid " +
                  std::to_string(nobody) +
                  "), whose MPI it may not use; make the store in the rank itself, or a \"local\" "
                  "one here");
}

/// Returns when every rank is about to finalise MPI. Open MPI's mpirun 4.1 crashes or hangs where
/// ranks end by an error while another rank is in MPI_Finalize, which waits inside the launcher:
/// tests/faults/README.md has how often.
/// A rank that waits here is one that computes, to the launcher; and it leaves its core to others.
/// Like MPI_Finalize it has no deadline: a rank that has finished waits for those that compute.
void wait_for_all_ranks() {
  MPI_Request barrier = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &barrier);
  int all_came = 0;
  MPI_Test(&barrier, &all_came, MPI_STATUS_IGNORE);
  while (all_came == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    MPI_Test(&barrier, &all_came, MPI_STATUS_IGNORE);
  }
}

/// MPI_Finalize deletes the attributes of MPI_COMM_SELF before anything else.
int wait_at_finalize(MPI_Comm, int, void*, void*) {
  wait_for_all_ranks();
  return MPI_SUCCESS;
}

void at_exit() {
  if (!is_running() || owner() != getpid()) return;
  wait_for_all_ranks();
  MPI_Finalize();
}

/// With fewer, MPI_Init ends the process itself, or waits.
void require_open_files() {
  constexpr rlim_t kLeast = 20;  // seen to suffice two ranks with Open MPI 4.1
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kLeast) return;
  throw Error(ErrorCode::io, "ulimit -n allows " + std::to_string(limit.rlim_cur) +
                                 " open files, fewer than MPI needs; raise it, ulimit -n 1024, in "
                                 "the shell or batch script that starts the job");
}

/// Called with an attribute of MPI_COMM_SELF, as the one above.
int free_attribute(MPI_Comm, int, void* value, void*) {
  const std::unique_ptr<MPI_Comm> comm(static_cast<MPI_Comm*>(value));
  MPI_Comm_free(comm.get());
  return MPI_SUCCESS;
}

}  // namespace

void throw_error(int code, const std::string& call) {
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ErrorCode::communication, call + ": " + text);
}

std::string version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole(text, static_cast<std::size_t>(length));
  std::istringstream words(whole.substr(0, whole.find_first_of(",\n")));
  std::string line;
  for (std::string word; words >> word;) {  // MPICH says "MPICH Version:" and a tab
    if (word != "Version:") line += (line.empty() ? "" : " ") + word;
  }
  return line;
}

void require_launch(const Settings& settings) {
  if (settings.launcher == "ignore") return;
  int size = 0;
  check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  const std::optional<Launch> launch = find_launch();
  const std::string text = launch_mismatch(launch, size, version());
  if (text.empty()) return;
  const bool is_reporter = launch->size == 0 || launch->rank <= 0;
  throw Error(ErrorCode::invalid_argument, text, ErrorScope::agreed, is_reporter);
}

bool is_running() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

void ensure_initialized() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    throw Error(ErrorCode::communication,
                "MPI is finalised; a store must be created before MPI_Finalize");
  }
  if (is_running()) return require_own_process();
  require_open_files();
  int provided = 0;
  // Asynchronous calls are made by a thread of their own.
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  require_own_process();
  std::atexit(at_exit);
}

int thread_level() {
  int level = MPI_THREAD_SINGLE;
  check(MPI_Query_thread(&level), "MPI_Query_thread");
  return level;
}

namespace {

/// Global, as MPI is.
struct Turns {
  std::atomic<int> holders{0};
  std::mutex mutex;
};

Turns& turns() noexcept {
  static Turns turns;
  return turns;
}

}  // namespace

std::shared_ptr<void> let_threads_call() {
  if (thread_level() >= MPI_THREAD_MULTIPLE) return std::make_shared<int>();
  ++turns().holders;
  return {&turns(), [](Turns* held) { --held->holders; }};
}

Turn::Turn() {
  Turns& all = turns();
  if (all.holders.load(std::memory_order_acquire) != 0) lock_ = std::unique_lock(all.mutex);
}

void free_at_finalize(MPI_Comm comm) {
  int key = MPI_KEYVAL_INVALID;
  check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_attribute, &key, nullptr),
        "MPI_Comm_create_keyval");
  check(MPI_Comm_set_attr(MPI_COMM_SELF, key, new MPI_Comm(comm)), "MPI_Comm_set_attr");
}

void finalize_together() {
  static std::once_flag once;
  std::call_once(once, [] {
    int key = MPI_KEYVAL_INVALID;
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, wait_at_finalize, &key, nullptr),
          "MPI_Comm_create_keyval");
    check(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr), "MPI_Comm_set_attr");
  });
}

void abort_job(int exit_code) {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace tutti::mpi

namespace tutti {

std::string mpi_version() { return mpi::version(); }

std::string mpi_of_build() {
#if defined(OMPI_MAJOR_VERSION)
  return "Open MPI v" + std::to_string(OMPI_MAJOR_VERSION) + "." +
         std::to_string(OMPI_MINOR_VERSION) + "." + std::to_string(OMPI_RELEASE_VERSION);
#elif defined(I_MPI_VERSION)
  return std::string("Intel(R) MPI Library ") + I_MPI_VERSION;
#elif defined(MVAPICH_VERSION)
  return std::string("MVAPICH ") + MVAPICH_VERSION;
#elif defined(MVAPICH2_VERSION)
  return std::string("MVAPICH2 ") + MVAPICH2_VERSION;
#elif defined(MPICH_VERSION)
  return std::string("MPICH ") + MPICH_VERSION;
#else
  return "an MPI of version " + std::to_string(MPI_VERSION) + "." + std::to_string(MPI_SUBVERSION);
#endif
}

MPI_Comm duplicate_world() {
  mpi::ensure_initialized();
  MPI_Comm copy = MPI_COMM_NULL;
  mpi::check(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
  mpi::check(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  mpi::free_at_finalize(copy);
  return copy;
}

}  // namespace tutti
