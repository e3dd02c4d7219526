// SPDX-License-Identifier: Apache-2.0
// MPI's life in this process, and its return codes as errors. MPI itself is global, so this is the
// one place with global effects.
#pragma once

#include <chrono>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>

#include "tutti/error.hpp"
#include "tutti/settings.hpp"

#include "runtime/mpi/library.hpp"
#include "runtime/mpi/watchdog.hpp"

namespace tutti::mpi {

/// Throws Error(communication, "MPI_Isend to rank 3: ...") unless `code` is 0. Everything
/// in this folder uses a communicator of our own with MPI_ERRORS_RETURN; without that, MPI would
/// end the job before a code is returned.
[[noreturn]] void throw_error(int code, const std::string& call);
inline void check(int code, const char* call) {
  if (code != 0) throw_error(code, call);
}
/// `call()` makes the text, if it is needed.
template <class Text>
requires std::is_invocable_r_v<std::string, Text&>
void check(int code, Text&& call) {
  if (code != 0) throw_error(code, call());
}

/// The MPI library that is loaded, such as "Open MPI v4.1.4". May be called before MPI_Init.
/// Errors: there is none.
std::string version();

/// Throws the invalid_argument of launch_mismatch() if MPI_COMM_WORLD is one rank and the launcher
/// has started several, unless the settings say to ignore it. The launcher's rank 0 reports it.
void require_launch(const Settings& settings);

/// Throws invalid_argument unless a handle of this kind of MPI is one of the MPI that is loaded.
void require_abi(MpiAbi abi, const char* call);

/// Initialises MPI, which is loaded, if the program has not; then MPI is also finalised, when the
/// process exits. Of the settings it reads the launcher and the deadline.
/// Errors: communication if MPI cannot be initialised or is finalised already; invalid_argument,
/// on all ranks, if this MPI would end the process because another launcher has started it. Where
/// processes of the job do not call it, all others end at the deadline (init_watch.hpp).
void ensure_initialized(const Settings& settings);

/// True between MPI_Init and MPI_Finalize. Loads nothing unless the program has loaded an MPI.
bool is_running() noexcept;

/// What MPI allows threads to do.
ThreadLevel thread_level();

/// The hold of a turn: the one lock, or a place among the threads that are in MPI at once.
class TurnHold {
 public:
  /// Waits for its turn; none is given to another thread once this process ends MPI.
  TurnHold() noexcept;
  ~TurnHold() { leave(); }
  TurnHold(const TurnHold&) = delete;
  TurnHold& operator=(const TurnHold&) = delete;
  [[nodiscard]] bool is_given() const noexcept { return is_given_; }

 private:
  void leave() noexcept;

  bool is_locked_ = false;
  bool is_inside_ = false;
  bool is_given_ = false;
};

/// A thread's turn to call MPI, which the watchdog looks at: one at a time, unless MPI has
/// MPI_THREAD_MULTIPLE. Threads have stores of their own, or wait for asynchronous calls. Turns of
/// one thread do not nest. The calls that make communicators wait for other ranks in their turn: by
/// then all of these have come, and one thread of a process makes groups at a time. The program
/// sees to that for duplicate_world() and for groups of some ranks whose lanes are MPI's.
class Turn {
 public:
  /// `call` is its name, a literal. Errors: communication once this process ends MPI.
  explicit Turn(const char* call) : Turn(call, std::nothrow) {
    if (!is_given()) throw_ended(call);
  }
  /// For what must not throw: look whether it is given.
  Turn(const char* call, std::nothrow_t /*unused*/) noexcept : inside_(call) {}
  [[nodiscard]] bool is_given() const noexcept { return hold_.is_given(); }

 private:
  [[noreturn]] static void throw_ended(const char* call);

  TurnHold hold_;
  InsideCall inside_;
};

/// True if any thread may call MPI at any time.
bool allows_all_threads();

/// This thread's alone to make groups, as long as it holds the lock; no lock where MPI lets threads
/// do so at once. Errors: invalid_argument after `limit` seconds.
[[nodiscard]] std::unique_lock<std::timed_mutex> require_only_maker(
    std::chrono::duration<double> limit);

/// From now on MPI_Finalize, also one of the program's own, first waits for all ranks without the
/// launcher. Collective over MPI_COMM_WORLD: all ranks call it, or none.
void finalize_together() noexcept;

/// For what MPI_Finalize calls, before anything else: no other thread has a turn any more, and what
/// it does in asynchronous calls is given up. Does so once.
void begin_finalize() noexcept;

/// Ends the whole job now.
[[noreturn]] void abort_job(int exit_code);

}  // namespace tutti::mpi
