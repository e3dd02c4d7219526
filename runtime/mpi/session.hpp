// SPDX-License-Identifier: Apache-2.0
// The initialisation and the end of MPI in this process, and its return codes as errors. MPI is
// global, so global effects are limited to this file.
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

/// Throws Error(communication, "MPI_Isend to rank 3: ...") unless `code` is 0. All code in this
/// folder uses communicators of our own with MPI_ERRORS_RETURN, because otherwise MPI would end the
/// job before it returns a code.
[[noreturn]] void throw_error(int code, const std::string& call);
inline void check(int code, const char* call) {
  if (code != 0) throw_error(code, call);
}
/// `call()` returns the text, and is only called after an error.
template <class Text>
requires std::is_invocable_r_v<std::string, Text&>
void check(int code, Text&& call) {
  if (code != 0) throw_error(code, call());
}

/// Returns the version of the loaded MPI, such as "Open MPI v4.1.4". May be called before MPI_Init.
/// Errors: if there is no MPI.
std::string version();

/// Throws the invalid_argument of launch_mismatch() if MPI_COMM_WORLD is one rank although the
/// launcher has started several, unless the settings ignore that. The launcher's rank 0 reports it.
void require_launch(const Settings& settings);

/// Throws invalid_argument unless handles of this kind of MPI fit the loaded MPI.
void require_abi(MpiAbi abi, const char* call);

/// Initialises MPI, which must be loaded, unless the program has done so. Then MPI is also
/// finalised when the process exits. Uses only the launcher and the deadline of the settings.
/// Errors: communication if MPI cannot be initialised, or is already finalised; invalid_argument,
/// on all ranks, if this MPI would end the process because another launcher has started it. If some
/// processes of the job do not call this, all others end at the deadline (init_watch.hpp).
void ensure_initialized(const Settings& settings);

/// True between MPI_Init and MPI_Finalize. Loads nothing unless the program has loaded an MPI.
bool is_running() noexcept;

/// Returns which calls of threads MPI allows.
ThreadLevel thread_level();

/// Holds a turn: either the lock, or a place among the threads that are in MPI at the same time.
class TurnHold {
 public:
  /// Waits for a turn. Other threads get none once a thread has begun to end MPI.
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

/// A thread's turn to call MPI, observed by the watchdog. Only one thread has a turn at a time,
/// unless MPI has MPI_THREAD_MULTIPLE. Threads may have stores of their own, or wait for
/// asynchronous calls. Turns of one thread must not be nested. Calls that make communicators wait
/// for other ranks during their turn: by then all of these have arrived, and only one thread of a
/// process makes groups at a time. For duplicate_world(), and for groups of some ranks whose lanes
/// are MPI's, the program is responsible for that.
class Turn {
 public:
  /// `call` is the name of the MPI function, a literal. Errors: communication once this process
  /// ends MPI.
  explicit Turn(const char* call) : Turn(call, std::nothrow) {
    if (!is_given()) throw_ended(call);
  }
  /// For code that must not throw, and has to test is_given() instead.
  Turn(const char* call, std::nothrow_t /*unused*/) noexcept : inside_(call) {}
  [[nodiscard]] bool is_given() const noexcept { return hold_.is_given(); }

 private:
  [[noreturn]] static void throw_ended(const char* call);

  TurnHold hold_;
  InsideCall inside_;
};

/// True if any thread may call MPI at any time.
bool allows_all_threads();

/// Returns a lock during which no other thread of this process makes groups. It is empty if MPI
/// allows several threads to do so. Errors: invalid_argument after `limit` seconds.
[[nodiscard]] std::unique_lock<std::timed_mutex> require_only_maker(
    std::chrono::duration<double> limit);

/// Makes MPI_Finalize, even if the program calls it, first wait for all ranks without the launcher.
/// Collective over MPI_COMM_WORLD: all ranks call this, or none.
void finalize_together() noexcept;

/// To be called first by all functions that MPI_Finalize calls: ends the turns of other threads,
/// and gives up their asynchronous calls. Has an effect only once.
void begin_finalize() noexcept;

/// Ends the whole job immediately.
[[noreturn]] void abort_job(int exit_code);

}  // namespace tutti::mpi
