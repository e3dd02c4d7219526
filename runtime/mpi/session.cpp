// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/session.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <link.h>
#include <memory>
#include <mutex>
#include <new>
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

#include "collectives/job/local_error.hpp"
#include "runtime/base/write_signals.hpp"
#include "runtime/job/async_calls.hpp"
#include "runtime/mpi/init_watch.hpp"
#include "runtime/mpi/kept_comms.hpp"
#include "runtime/mpi/sockets/calls.hpp"

namespace tutti::mpi {

namespace {

/// The process that MPI belongs to, set by the first store; 0 before. Processes that it forks
/// inherit MPI's state and exit handlers, but must not use them.
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

/// The state of turns, global as MPI is. Never destroyed, because exit handlers need it.
struct Turns {
  enum class Kind { unknown, one_at_a_time, all_at_once };
  std::atomic<Kind> kind{Kind::unknown};
  std::timed_mutex mutex;                   ///< for turns of one thread at a time
  std::atomic<int> inside{0};               ///< number of threads in MPI, if several are allowed
  std::atomic<std::thread::id> ended_by{};  ///< the thread that ends MPI, the only one with turns
  std::atomic<bool> refuses{false};  ///< other threads need not wait for their turns any more
};
Turns& turns() noexcept {
  alignas(Turns) static std::byte place[sizeof(Turns)];
  static auto* const all = new (place) Turns;
  return *all;
}

/// A plain variable, so that exit handlers of a thread can still read it.
thread_local bool has_turn = false;

/// Asks MPI once, or a few times if several threads begin together.
Turns::Kind kind_of_turns() noexcept {
  const auto known = turns().kind.load(std::memory_order_relaxed);
  if (known != Turns::Kind::unknown) return known;
  ThreadLevel level{};
  const bool may_all = calls().thread_level(&level) == 0 && level == ThreadLevel::multiple;
  const auto kind = may_all ? Turns::Kind::all_at_once : Turns::Kind::one_at_a_time;
  turns().kind.store(kind, std::memory_order_relaxed);
  return kind;
}

constexpr auto kLookAtTurns = std::chrono::microseconds(100);

/// Gives all further turns to this thread; other threads wait until turns are refused. Returns
/// false if another thread is in a call of MPI that takes longer than calls which wait for nobody.
bool end_turns() noexcept {
  constexpr auto kLongestCall = std::chrono::seconds(10);
  std::thread::id nobody;
  if (!turns().ended_by.compare_exchange_strong(nobody, std::this_thread::get_id())) return true;
  if (kind_of_turns() == Turns::Kind::one_at_a_time) {
    return std::unique_lock(turns().mutex, kLongestCall).owns_lock();
  }
  const auto limit = std::chrono::steady_clock::now() + kLongestCall;
  while (turns().inside.load() != 0 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(kLookAtTurns);
  }
  return turns().inside.load() == 0;
}

/// Without an MPI there is neither MPI_Init nor a launcher that must be spared at the end of a job.
bool is_without_mpi() noexcept { return calls().abi() == MpiAbi::none; }

/// Set if all ranks of the job have called finalize_together().
std::atomic<bool> finalizes_together{false};

/// Waits until every rank is about to finalise MPI. Open MPI's mpirun 4.1 crashes or hangs if ranks
/// end by an error while another rank is in MPI_Finalize, which waits inside the launcher;
/// tests/faults/README.md has the frequency. To the launcher, a rank that waits here still
/// computes; and it leaves its core to others. Like MPI_Finalize this has no deadline: a rank that
/// has finished waits for those that compute. It is done once per process, whoever begins the end,
/// because all ranks make one barrier. Other threads have turns meanwhile, unless MPI_Finalize has
/// begun. Ranks that wait for this one in a call learn that it makes no more calls.
void wait_for_all_ranks() noexcept {
  static std::atomic<bool> has_waited{false};
  if (has_waited.exchange(true) || is_without_mpi()) return;
  leave_idle_groups();  // before the others learn that this rank is here
  const Calls& mpi = calls();
  Request barrier;
  {
    const Turn turn("MPI_Ibarrier", std::nothrow);
    if (!turn.is_given() || mpi.start_barrier(mpi.world(), &barrier) != 0) return;
  }
  for (bool all_came = false; !all_came;) {
    leave_idle_groups();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    const Turn turn("MPI_Test", std::nothrow);
    if (!turn.is_given() || mpi.test(&barrier, &all_came) != 0) return;
  }
}

/// Keeps all loaded components of Open MPI in memory. MPI_Finalize of version 4.1 unloads
/// components while its event thread may still run their code: 2 of 503 processes that were alone
/// in their jobs ended by SIGSEGV.
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

/// A variable in the environment of a rank, for programs that it starts: the rank's process ID, and
/// what its launcher has told it.
constexpr const char* kRankMark = "_TUTTI_RANK";

/// Returns the values by which a launcher distinguishes processes and jobs; empty if none has
/// started this process. Programs that a rank starts inherit them, whereas those of another
/// launcher have other values.
std::string given_by_launcher() {
  const std::optional<Launch> launch = find_launch();
  if (!launch) return {};
  std::string text = launch->evidence;
  for (const char* name : {"PMIX_NAMESPACE", "PMI_FD", "PMI_PORT", "PMI_JOBID", "SLURM_JOB_ID",
                           "SLURM_STEP_ID", "FLUX_JOB_ID"}) {
    const char* value = std::getenv(name);
    text += std::string(",") + (value == nullptr ? "" : value);
  }
  return text;
}

/// Throws in a program that was started by a rank, because it would take the rank's place: MPI has
/// one process per rank.
void require_own_place() {
  const char* mark = std::getenv(kRankMark);
  const std::string place = given_by_launcher();
  if (mark == nullptr || place.empty()) return;
  const std::string_view text = mark;
  const std::string_view process = text.substr(0, text.find(':'));
  const std::string own = std::to_string(getpid());
  if (process == own || text.substr(process.size()) != ":" + place) return;
  throw Error(ErrorCode::invalid_argument,
              "this process (pid " + own + ") was started by a rank (pid " + std::string(process) +
                  "), whose place in the job it would take (" + find_launch()->evidence +
                  "): make the store in the rank itself, or a \"local\" one here; a program that "
                  "has a launcher of its own: env -u " +
                  kRankMark);
}

/// Sets the variable that programs started by this rank inherit.
void mark_rank() {
  const std::string place = given_by_launcher();
  if (!place.empty()) setenv(kRankMark, (std::to_string(getpid()) + ":" + place).c_str(), 1);
}

void on_finalize(void* /*unused*/) noexcept { begin_finalize(); }

/// Finalises MPI when the process exits. Asynchronous calls that all ranks have made continue while
/// this rank waits for the others. If MPI ends the process from within a call, it cannot be
/// finalised.
void at_exit() {
  if (has_turn || !is_running() || owner() != getpid()) return;
  wait_for_all_ranks();
  const bool is_alone = end_turns();
  turns().refuses = true;
  park_async_calls(/*tells_others=*/false);
  if (!is_alone) {
    std::fputs(
        "tutti: warning: MPI is not finalised, because another thread of this process does "
        "not return from a call of it; join threads before the program exits\n",
        stderr);
    return;
  }
  keep_components_loaded();
  calls().finalize();
}

/// Done once MPI runs: marks this process as a rank, for programs that it starts, and registers for
/// the beginning of MPI_Finalize, even if the program calls it.
void settle_rank() {
  static std::once_flag once;
  std::call_once(once, [] {
    mark_rank();
    const Turn turn("MPI_Comm_set_attr");
    check(calls().call_at_finalize(on_finalize, nullptr), "MPI_Comm_set_attr");
  });
}

/// Throws if MPI would have too few open files; then MPI_Init would end the process, or wait.
void require_open_files() {
  constexpr rlim_t kLeast = 20;  // was enough for two ranks with Open MPI 4.1
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

/// True if MPI_Init of this MPI would end the process, because it cannot communicate with the
/// launcher. Most MPIs go on as a single rank, which require_launch() detects. But MPICH 5 ends the
/// process under Open MPI's launcher, unless it was built with PMIx ("unsupported PMI version
/// PMIx"), and Open MPI 4 does so under srun without PMI (80 lines).
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
  const std::string text = calls().error_text(code);
  if (is_without_mpi()) throw Error(ErrorCode::communication, text);
  throw Error(ErrorCode::communication, call + ": " + text);
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

/// Also detects the MPI of a program that has not made a store yet.
bool is_running() noexcept {
  const Calls* mpi = loaded_calls();
  if (mpi == nullptr) {
    try {
      if (mpi_of_program()) mpi = &load_or_throw();
    } catch (const std::exception&) {
      return false;  // the library cannot use this MPI
    }
  }
  return mpi != nullptr && mpi->is_initialized() && !mpi->is_finalized();
}

void ensure_initialized(const Settings& settings) {
  if (calls().is_finalized()) {
    throw Error(ErrorCode::communication,
                "MPI is finalised; a store must be created before MPI_Finalize");
  }
  if (is_running()) {
    require_own_process();
    return settle_rank();
  }
  require_own_place();
  require_open_files();
  const std::optional<Launch> launch = find_launch();
  require_launcher_of_mpi(settings, launch);
  if (is_without_mpi()) {
    sockets::start(settings.timeout);
  } else {
    const InitWatch watch(launch, settings.timeout);
    // MPI creates files of some MiB, which `ulimit -f` may refuse.
    const WriteSignalsBlocked blocked;
    // Asynchronous calls are made by a separate thread.
    check(calls().initialize(ThreadLevel::serialized), "MPI_Init_thread");
  }
  require_own_process();
  std::atexit(at_exit);
  settle_rank();
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

/// A thread whose turn is refused makes its group fail. So it waits until the thread that ends MPI
/// has told the other nodes the reason.
TurnHold::TurnHold() noexcept {
  Turns& all = turns();
  const std::thread::id self = std::this_thread::get_id();
  is_given_ = all.ended_by.load() == self;
  if (is_given_) return;
  is_locked_ = kind_of_turns() == Turns::Kind::one_at_a_time;
  is_inside_ = !is_locked_;
  if (is_locked_) all.mutex.lock();
  if (is_inside_) all.inside.fetch_add(1);
  is_given_ = all.ended_by.load() == std::thread::id();
  has_turn = is_given_;
  if (is_given_) return;
  leave();
  while (!all.refuses) std::this_thread::sleep_for(kLookAtTurns);
}

void TurnHold::leave() noexcept {
  if (is_locked_) turns().mutex.unlock();
  if (is_inside_) turns().inside.fetch_sub(1);
  if (is_locked_ || is_inside_) has_turn = false;
  is_locked_ = is_inside_ = false;
}

void Turn::throw_ended(const char* call) {
  throw Error(ErrorCode::communication,
              std::string(call) +
                  ": this process ends MPI, by MPI_Finalize or its exit, while a thread still "
                  "needs it; wait() for asynchronous calls, and destroy stores and communicators, "
                  "first");
}

bool allows_all_threads() { return kind_of_turns() == Turns::Kind::all_at_once; }

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

void finalize_together() noexcept { finalizes_together = true; }

void begin_finalize() noexcept {
  static std::atomic<bool> has_begun{false};
  if (has_begun.exchange(true)) return;
  end_turns();
  park_async_calls(/*tells_others=*/true);
  turns().refuses = true;
  park_async_calls(/*tells_others=*/false);
  leave_idle_groups();
  if (finalizes_together) {
    wait_for_all_ranks();
    static_cast<void>(collectives::caught([] { drop_notices(); }));
  }
  keep_components_loaded();
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
