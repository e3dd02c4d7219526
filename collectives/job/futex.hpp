// SPDX-License-Identifier: Apache-2.0
// Sleeping until a word of memory changes.
#pragma once

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tutti::collectives {

/// Returns at once if `word` is not `seen`; otherwise sleeps until it is woken, or `limit` has
/// passed, or for no reason. The word may be in memory that processes share.
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                       std::chrono::nanoseconds limit) noexcept {
  const timespec time{static_cast<std::time_t>(limit.count() / 1'000'000'000),
                      static_cast<long>(limit.count() % 1'000'000'000)};
  syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(&word), FUTEX_WAIT, seen, &time,
          nullptr, 0);
}

/// Wakes all threads that sleep on the word.
inline void futex_wake(const std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr,
          nullptr, 0);
}

/// A counter on which threads of one process can sleep, like std::atomic::wait() and notify_all(),
/// which however yield before they sleep: beside a program that computes, a yield takes some
/// milliseconds. All accesses are sequentially consistent, so that either the sleeper sees a
/// change, or notify_all() sees the sleeper.
class SleepableCounter {
 public:
  [[nodiscard]] std::uint32_t load() const { return value_.load(); }
  std::uint32_t fetch_add(std::uint32_t more) { return value_.fetch_add(more); }
  std::uint32_t fetch_sub(std::uint32_t less) { return value_.fetch_sub(less); }

  /// Sleeps until the value differs from `seen`.
  void wait(std::uint32_t seen) {
    constexpr std::chrono::seconds kLimit(1);
    sleepers_.fetch_add(1);
    while (value_.load() == seen) futex_wait(value_, seen, kLimit);
    sleepers_.fetch_sub(1);
  }
  /// Wakes all sleepers. Call it after each change.
  void notify_all() {
    if (sleepers_.load() != 0) futex_wake(value_);
  }

 private:
  std::atomic<std::uint32_t> value_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace tutti::collectives
