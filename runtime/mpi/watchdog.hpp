// SPDX-License-Identifier: Apache-2.0
// A call of MPI that does not return cannot be given up, so the process is. Open MPI 4.1 waits for
// a lock of its own, for example, if a peer's connection breaks in the middle of a large message.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace tutti::mpi {

/// Where one thread is. Written by it, read by the watchdog.
struct CallMark {
  std::atomic<std::uint64_t> count{0};  ///< odd while the thread is inside of a call
  std::atomic<const char*> call{nullptr};
};

/// This thread's.
CallMark& call_mark();

/// While it lives, this thread is inside of a call of MPI. Two stores to memory that no other
/// thread writes; they do not nest.
class InsideCall {
 public:
  /// `call` is its name, a literal.
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

/// From now on a thread looks whether calls return. If one does not for `timeout` and a second, the
/// process says which, fails the nodes of its groups, and ends with the exit code of a timeout. A
/// job that was suspended does not expire. 0: there is no deadline. Of several calls the longest
/// time counts, and the first name: `rank` is who speaks, "rank 3 (host b, pid 47)".
/// Errors: out_of_memory if no thread can be started.
void watch_calls(std::chrono::duration<double> timeout, const std::string& rank);

}  // namespace tutti::mpi
