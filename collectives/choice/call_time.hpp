// SPDX-License-Identifier: Apache-2.0
// CallTime: the duration of a call, by the clock that the ranks of a node share.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace tutti::collectives {

/// The end and the duration of a rank's call, in six bytes of its next announcement: the end in
/// units of 16 ticks or nanoseconds, modulo 2^32, and the duration, rounded down by less than a
/// thousandth. The time of a call of more than some seconds is unknown.
struct CallTime {
  std::uint32_t end = 0;
  std::uint16_t packed = 0;  ///< 11 bits of the duration, and the number of bits to shift them

  /// `begun` and `ended` are in ticks() or, for a call between nodes, in nanoseconds, whose length
  /// is the same on all nodes.
  static CallTime between(std::uint64_t begun, std::uint64_t ended) {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max() / 2;
    const std::uint64_t duration = std::max<std::uint64_t>(1, (ended - begun) / kTicksPerUnit);
    if (ended < begun || duration > kMost) return {};
    const auto width = static_cast<int>(std::bit_width(duration));
    const int shift = std::max(0, width - kDurationBits);
    return {static_cast<std::uint32_t>(ended / kTicksPerUnit),
            static_cast<std::uint16_t>(duration >> shift | static_cast<std::uint64_t>(shift)
                                                               << kDurationBits)};
  }

  [[nodiscard]] bool is_known() const { return packed != 0; }
  [[nodiscard]] std::int32_t duration() const {
    return (packed & ((1 << kDurationBits) - 1)) << (packed >> kDurationBits);
  }

 private:
  static constexpr std::uint64_t kTicksPerUnit = 16;
  static constexpr int kDurationBits = 11;
};

/// Combines the time of a call on two nodes, or on two sets of nodes; 0 means unknown.
constexpr std::uint32_t longest_of(std::uint32_t one, std::uint32_t other) {
  return one == 0 || other == 0 ? 0 : std::max(one, other);
}

/// The time from when the last rank began a call until the last rank ended it. Late arrivals do not
/// count, whereas time that a rank spends waiting for the work of another does.
class LongestTime {
 public:
  explicit LongestTime(const CallTime& own) : own_(own) { add(own); }

  void add(const CallTime& time) {
    if (!time.is_known()) is_known_ = false;
    const auto end = static_cast<std::int32_t>(time.end - own_.end);
    last_end_ = std::max(last_end_, end);
    last_begin_ = std::max(last_begin_, end - time.duration());
  }

  /// Returns the time in units of 16 ticks or nanoseconds, or 0 if the time of any rank is unknown.
  [[nodiscard]] std::uint32_t get() const {
    return is_known_ ? static_cast<std::uint32_t>(last_end_ - last_begin_) : 0;
  }

 private:
  CallTime own_;
  bool is_known_ = true;
  std::int32_t last_end_ = 0;
  std::int32_t last_begin_ = std::numeric_limits<std::int32_t>::min();
};

}  // namespace tutti::collectives
