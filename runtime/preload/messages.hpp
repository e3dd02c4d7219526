// SPDX-License-Identifier: Apache-2.0
// The functions of MPI that wait for another rank's message. MPI carries them out. Where there is a
// deadline, a rank shows in memory which of them it is in, so that those who miss it in a
// collective can say so. In most of them it also answers ranks of other nodes, which ask by
// messages. A wait in them has no deadline itself.
#pragma once

#include <chrono>
#include <mpi.h>
#include <optional>

#include "collectives/wait/long_waits.hpp"
#include "runtime/preload/functions.hpp"

namespace tutti::preload {

/// The arguments of such a call that say what it waits for; null where it has no such argument.
struct Awaited {
  const int* dest = nullptr;
  const int* given_tag = nullptr;  ///< of what goes to `dest`
  const int* source = nullptr;
  const int* tag = nullptr;
  MPI_Comm comm = MPI_COMM_NULL;
  const int* requests = nullptr;  ///< how many
};

/// A flag that MPI has not set, because it refuses the call. The code may be MPI_SUCCESS then:
/// MPICH 5 returns that after an error handler of the program's own.
constexpr int kUntouched = -1;

/// The answer of MPI_Iprobe.
struct Look {
  int code = MPI_SUCCESS;
  int flag = kUntouched;
  [[nodiscard]] bool is_refused() const { return code != MPI_SUCCESS || flag == kUntouched; }
};

/// Shows a call during its lifetime, if somebody may ask, and unless others of this rank's threads
/// have taken the places. Local.
class ShownCall {
  using Clock = std::chrono::steady_clock;
  static constexpr auto kLookEvery = std::chrono::milliseconds(100);

 public:
  ShownCall(const char* function, const Awaited& awaited) noexcept;

  /// True if ranks of other nodes may ask, by messages. MPI's function would not answer, so
  /// what the call waits for is polled.
  [[nodiscard]] bool has_askers() const noexcept { return has_askers_; }

  /// Looks for a message for this call, once.
  [[nodiscard]] Look look() const;
  /// Returns when there is a message for this call, or MPI has refused to look.
  [[nodiscard]] Look probe() const;
  /// Returns MPI_Wait's code for a message that this call has sent.
  [[nodiscard]] int complete(MPI_Request sent) const;

  /// Calls this function until it returns true, and answers those who ask.
  template <class IsDone>
  void poll(IsDone is_done) const {
    if (is_done()) return;
    const Clock::time_point since = Clock::now();
    Clock::time_point look_at = since + kLookEvery;
    while (!is_done()) pause(since, look_at);
  }

 private:
  void pause(Clock::time_point since, Clock::time_point& look_at) const;

  const char* function_;
  Awaited awaited_;
  bool has_askers_ = false;
  std::optional<collectives::LongWaits::Shown> shown_;
};

/// Fills in these functions of C: the MPI's own, if no deadline is asked for.
void add_messages(Functions& functions);

}  // namespace tutti::preload
