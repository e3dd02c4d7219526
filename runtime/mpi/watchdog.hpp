// SPDX-License-Identifier: Apache-2.0
// The watchdog ends a process in which a call of MPI does not return, because such a call cannot be
// given up. Open MPI 4.1, for example, waits for a lock of its own if a peer's connection breaks in
// the middle of a large message.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace tutti::mpi {

/// The current call of one thread. Written by the thread, read by the watchdog.
struct CallMark {
  std::atomic<std::uint64_t> count{0};  ///< odd while the thread is in a call
  std::atomic<const char*> call{nullptr};
};

/// Returns this thread's mark.
CallMark& call_mark();

/// Marks this thread as being in a call of MPI during its lifetime. It costs two stores to memory
/// that no other thread writes. Must not be nested.
class InsideCall {
 public:
  /// `call` is the name of the function, a literal.
  explicit InsideCall(const char* call) : mark_(call_mark()) {
    mark_.call.store(call, std::memory_order_relaxed);
    step();
  }
  ~InsideCall() { step(); }
  InsideCall(const InsideCall&) = delete;
  InsideCall& operator=(const InsideCall&) = delete;

 private:
  void step() noexcept {
    mark_.count.store(mark_.count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  CallMark& mark_;
};

/// Starts a thread that observes whether calls return. If one does not within `timeout` plus a
/// second, the process prints its name, fails the nodes of its groups, and ends with the exit code
/// of a timeout. A job that was suspended does not exceed it. 0 means no deadline. If this is
/// called several times, the longest time applies, and the first `rank`, which names this process,
/// such as "rank 3 (host b, pid 47)". Errors: out_of_memory if no thread can be started.
void watch_calls(std::chrono::duration<double> timeout, const std::string& rank);

}  // namespace tutti::mpi
