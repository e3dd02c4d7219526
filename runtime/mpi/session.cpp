// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/session.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <link.h>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tutti/error.hpp"
#include "tutti/launch.hpp"
#include "tutti/mpi_abi.hpp"

#include "runtime/mpi/init_watch.hpp"

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
/// Once in a process, whoever begins the end: all ranks make one barrier.
void wait_for_all_ranks() noexcept {
  static std::atomic<bool> has_waited{false};
  if (has_waited.exchange(true)) return;
  const Calls& mpi = calls();
  Request barrier;
  if (mpi.start_barrier(mpi.world(), &barrier) != 0) return;
  for (bool all_came = false; mpi.test(&barrier, &all_came) == 0 && !all_came;) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

/// MPI_Finalize of Open MPI 4.1 unloads components while its thread for events may still run their
/// code: 2 of 503 processes that were alone in their jobs ended so by SIGSEGV. What is loaded now
/// stays.
void keep_components_loaded() noexcept {
  std::vector<std::string> components;
  const auto collect = [](dl_phdr_info* info, std::size_t /*size*/, void* to) {
    const std::string_view name = info->dlpi_name;
    const bool is_component = name.find("/mca_") != std::string_view::npos;
    if (is_component) static_cast<std::vector<std::string>*>(to)->emplace_back(name);
    return 0;
  };
  dl_iterate_phdr(collect, &components);
  for (const std::string& name : components) {
    dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  }
}

void wait_at_finalize(void* /*unused*/) noexcept {
  wait_for_all_ranks();
  keep_components_loaded();
}

void at_exit() {
  if (!is_running() || owner() != getpid()) return;
  wait_for_all_ranks();
  keep_components_loaded();
  calls().finalize();
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

bool has_library(const char* name) noexcept {
  const auto is_called = [](dl_phdr_info* info, std::size_t /*size*/, void* wanted) {
    const std::string_view file = info->dlpi_name;
    return file.find(static_cast<const char*>(wanted)) == std::string_view::npos ? 0 : 1;
  };
  return dl_iterate_phdr(is_called, const_cast<char*>(name)) != 0;
}

bool has_variable(const char* name) noexcept { return std::getenv(name) != nullptr; }

/// What an MPI does in MPI_Init where it cannot speak with the launcher. Most go on alone, which
/// require_launch() sees. MPICH 5 ends the process under Open MPI's launcher, unless it was built
/// with PMIx ("unsupported PMI version PMIx"), and Open MPI 4 does under srun without PMI (80
/// lines).
bool would_end_in_init(const Launch& launch, const std::string& mpi) {
  const bool is_open_mpi = mpi.starts_with("Open MPI");
  if (launch.mpi == "openmpi") return !is_open_mpi && !has_library("libpmix");
  const bool has_pmi = has_variable("PMIX_RANK") || has_variable("PMI_RANK");
  return launch.launcher == "srun" && is_open_mpi && !has_pmi;
}

void require_launcher_of_mpi(const Settings& settings, const std::optional<Launch>& launch) {
  if (settings.launcher == "ignore" || !launch) return;
  const std::string mpi = short_version(calls().version());
  if (!would_end_in_init(*launch, mpi)) return;
  const std::string text = launch_mismatch(launch, 1, mpi);
  if (text.empty()) return;
  throw Error(ErrorCode::invalid_argument, text, ErrorScope::agreed, launch->rank <= 0);
}

}  // namespace

void throw_error(int code, const std::string& call) {
  throw Error(ErrorCode::communication, call + ": " + calls().error_text(code));
}

std::string version() { return short_version(load_or_throw().version()); }

void require_launch(const Settings& settings) {
  if (settings.launcher == "ignore") return;
  int size = 0;
  {
    const Turn turn("MPI_Comm_size");
    check(calls().size(calls().world(), &size), "MPI_Comm_size");
  }
  const std::optional<Launch> launch = find_launch();
  const std::string text = launch_mismatch(launch, size, short_version(calls().version()));
  if (text.empty()) return;
  const bool is_reporter = launch->size == 0 || launch->rank <= 0;
  throw Error(ErrorCode::invalid_argument, text, ErrorScope::agreed, is_reporter);
}

/// A program that has MPI of its own may not have made a store yet.
bool is_running() noexcept {
  const Calls* mpi = loaded_calls();
  if (mpi == nullptr) {
    try {
      if (mpi_of_program()) mpi = &load_or_throw();
    } catch (const std::exception&) {
      return false;  // an MPI that the library cannot use
    }
  }
  return mpi != nullptr && mpi->is_initialized() && !mpi->is_finalized();
}

void ensure_initialized(const Settings& settings) {
  if (calls().is_finalized()) {
    throw Error(ErrorCode::communication,
                "MPI is finalised; a store must be created before MPI_Finalize");
  }
  if (is_running()) return require_own_process();
  require_open_files();
  const std::optional<Launch> launch = find_launch();
  require_launcher_of_mpi(settings, launch);
  {
    const InitWatch watch(launch, settings.timeout);
    // Asynchronous calls are made by a thread of their own.
    check(calls().initialize(ThreadLevel::serialized), "MPI_Init_thread");
  }
  require_own_process();
  std::atexit(at_exit);
}

ThreadLevel thread_level() {
  ThreadLevel level{};
  check(calls().thread_level(&level), "MPI_Query_thread");
  return level;
}

void require_abi(MpiAbi abi, const char* call) {
  if (abi == calls().abi()) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + ": the caller was compiled with the mpi.h of " + name_of(abi) +
                  ", and this process uses " + short_version(calls().version()) +
                  "; start it with the launcher of " + name_of(abi) + ", or compile it for " +
                  name_of(calls().abi()));
}

namespace {

/// Global, as MPI is.
struct Turns {
  enum class Kind { unknown, one_at_a_time, all_at_once };
  std::atomic<Kind> kind{Kind::unknown};
  std::mutex mutex;
};
constinit Turns turns;

/// Asks MPI once, or once in several threads that begin together.
Turns::Kind first_kind() {
  const bool may_all = thread_level() == ThreadLevel::multiple;
  const auto kind = may_all ? Turns::Kind::all_at_once : Turns::Kind::one_at_a_time;
  turns.kind.store(kind, std::memory_order_relaxed);
  return kind;
}

}  // namespace

std::unique_lock<std::mutex> Turn::take() {
  auto kind = turns.kind.load(std::memory_order_relaxed);
  if (kind == Turns::Kind::unknown) kind = first_kind();
  if (kind == Turns::Kind::all_at_once) return {};
  return std::unique_lock(turns.mutex);
}

std::unique_lock<std::timed_mutex> require_only_maker(std::chrono::duration<double> limit) {
  static std::timed_mutex one_maker;
  if (thread_level() == ThreadLevel::multiple) return {};
  std::unique_lock lock(one_maker, limit);
  if (lock.owns_lock()) return lock;
  throw Error(ErrorCode::invalid_argument,
              "another thread of this process makes a store or communicator, and has for " +
                  std::to_string(static_cast<long>(limit.count())) +
                  " s; let one thread make them all, or all ranks make them in the same order, or "
                  "initialise MPI with MPI_THREAD_MULTIPLE");
}

void finalize_together() {
  static std::once_flag once;
  std::call_once(once, [] {
    const Turn turn("MPI_Comm_set_attr");
    check(calls().call_at_finalize(wait_at_finalize, nullptr), "MPI_Comm_set_attr");
  });
}

void abort_job(int exit_code) {
  calls().abort(exit_code);
  std::_Exit(exit_code);
}

}  // namespace tutti::mpi

namespace tutti {

std::string mpi_version() { return mpi::version(); }
std::string mpi_of_build() { return mpi::load_or_throw().header_version(); }
MpiAbi mpi_abi() { return mpi::load_or_throw().abi(); }

std::string mpi_plugin() {
  mpi::load_or_throw();
  return mpi::plugin_file();
}

void duplicate_world_to_address(void* comm, MpiAbi abi) {
  const mpi::Calls& calls = mpi::load_or_throw();
  mpi::require_abi(abi, "duplicate_world");
  mpi::ensure_initialized(mpi::settings_by_variables());
  mpi::Comm copy;
  const mpi::Turn turn("MPI_Comm_dup");
  mpi::check(calls.duplicate(calls.world(), &copy), "MPI_Comm_dup");
  mpi::check(calls.return_errors(copy), "MPI_Comm_set_errhandler");
  calls.store_comm(copy, comm);
}

}  // namespace tutti
