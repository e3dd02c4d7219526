// SPDX-License-Identifier: Apache-2.0
// LinesToWrite: cache lines that a rank will write in its next call, asked for in advance.
//
// A line that peers have read is in their caches, too, and a write to it has to wait until they
// have given it up: some 100 ns, of which a core has no more than a dozen under way. A rank that
// waits for other ranks has the time to ask for the lines of its next call meanwhile.
#pragma once

#include <algorithm>
#include <cstddef>

namespace tutti::collectives {

/// Asks for the line of this address, to be written soon. Reads and writes nothing.
inline void prefetch_to_write(const std::byte* address) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*address));  // the builtin needs an option of the compiler
#else
  __builtin_prefetch(address, /*rw=*/1);
#endif
}

/// A stretch of memory that this rank will write, and that no other rank reads at present.
class LinesToWrite {
 public:
  /// Sets the stretch, instead of an earlier one. Only its first kMost bytes count: they are
  /// written while the next ones are on their way.
  void expect(std::byte* begin, std::size_t bytes) noexcept {
    next_ = begin;
    left_ = std::min(bytes, kMost);
  }
  /// Asks for the next lines of the stretch: for as many as take no longer than a poll.
  void ask_for_some() noexcept { ask(kAtOnce); }
  /// Asks for all of the stretch, for a rank that has nothing else to do in its call.
  void ask_for_all() noexcept { ask(kMost); }

 private:
  static constexpr std::size_t kCacheLine = 64;
  static constexpr std::size_t kAtOnce = 16 * kCacheLine;
  static constexpr std::size_t kMost = std::size_t{32} << 10;

  void ask(std::size_t most) noexcept {
    const std::size_t bytes = std::min(most, left_);
    for (std::size_t at = 0; at < bytes; at += kCacheLine) prefetch_to_write(next_ + at);
    next_ += bytes;
    left_ -= bytes;
  }

  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
};

}  // namespace tutti::collectives
