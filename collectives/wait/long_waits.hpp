// SPDX-License-Identifier: Apache-2.0
// LongWaits: the calls that a rank waits in, in words, in memory that the other ranks of its node
// can read. A rank that is missing in a call of one group may wait in a call of another, whose
// records those that wait for it do not see, or in one that has no records at all. Waits in groups'
// calls are shown after a while.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::collectives {

/// There is a place for the waits of four threads. Further ones are not shown.
class LongWaits {
 public:
  using Clock = std::chrono::steady_clock;

  /// Shows a wait during its lifetime. Only the rank itself makes one. `group` is the offset of the
  /// rank's control block for the group, or a number of the same wait on other ranks, which is no
  /// multiple of the size of a line. Words beyond kLongest are cut off. The first `kept` places are
  /// left to others.
  class Shown {
   public:
    Shown(LongWaits& waits, std::uint64_t group, std::string_view words, Clock::time_point since,
          std::size_t kept = 0) noexcept;
    ~Shown();
    Shown(const Shown&) = delete;
    Shown& operator=(const Shown&) = delete;

    [[nodiscard]] bool has_place() const { return state_ != nullptr; }

   private:
    std::atomic<std::uint64_t>* state_ = nullptr;  ///< null if there was no place
  };

  /// Returns the waits in other groups than this one, such as "waits in MPI_Barrier on grid rows
  /// (call 3) for 12 s"; empty if there are none. Callable from any rank of the node, at any time.
  [[nodiscard]] std::string in_other_groups(std::uint64_t group) const;

  /// True if a wait with this `group` is shown. Callable from any rank of the node, at any time.
  [[nodiscard]] bool shows(std::uint64_t group) const;

  static constexpr std::size_t kPlaces = 4;
  static constexpr std::size_t kKept = 1;  ///< for waits that others must not hide
  static constexpr std::size_t kLongest = 384;

 private:
  static constexpr std::size_t kWords = kLongest / sizeof(std::uint64_t);

  /// A reader that finds another state after reading has read parts of two waits.
  struct alignas(64) Place {
    std::atomic<std::uint64_t> state{0};  ///< number of changes << kStateBits | State
    std::atomic<std::uint64_t> group{0};
    std::atomic<std::int64_t> since{0};  ///< nanoseconds of the host's steady clock
    std::array<std::atomic<std::uint64_t>, kWords> words{};
  };

  std::array<Place, kPlaces> places_;
};

}  // namespace tutti::collectives
