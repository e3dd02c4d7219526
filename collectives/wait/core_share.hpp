// SPDX-License-Identifier: Apache-2.0
// CoreShare: whether other programs want the core that a waiting thread occupies.
//
// A fair scheduler (Linux: CFS, and EEVDF from 6.6 on) gives a thread that sleeps its core back as
// soon as it is woken, because it has used less than its share. A thread that yields has used its
// turn: a program that computes then keeps the core for a time slice of 3 or 4 milliseconds. Where
// nobody else wants the core, a yield returns within a microsecond, and costs less than sleeping
// and being woken. So a wait has to know which of the two cases it is in:
//
//     yields that return soon               one that does not       sleeps, no yield
//     |.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|----------------------|zzzzzz|  |zzzzz|  |zz|.|.|
//     nobody wants the core                                       wanted, for now      tries again
//
// The yields themselves show it, at the cost of reading the clock twice. The gain is described in
// collectives/wait/README.md.
#pragma once

#include <algorithm>
#include <chrono>

namespace tutti::collectives {

/// Estimates from the duration of this thread's own yields whether other programs want its core.
class CoreShare {
 public:
  using Clock = std::chrono::steady_clock;

  /// `peers_share`: ranks of the job share cores. Such a rank may also compute for a while, but
  /// sooner or later it waits for this one.
  explicit CoreShare(bool peers_share) : lost_(peers_share ? kLostToPeers : kLost) {}

  /// True if the next wait is better spent asleep. From time to time it is false although the core
  /// was wanted, so that the next yields find out whether it still is.
  [[nodiscard]] bool is_wanted(Clock::time_point now) const {
    return is_wanted_ && now < asks_again_at_;
  }
  /// True if the last yields showed that the core is wanted. Unlike is_wanted(), does not use the
  /// clock.
  [[nodiscard]] bool was_wanted() const { return is_wanted_; }

  /// Records that a yield has returned after the time `away`.
  void came_back(Clock::duration away, Clock::time_point now) {
    if (away < lost_) {
      // Other programs that have exceeded their share let one or two yields return at once.
      if (is_wanted_ && ++soon_back_ >= kEnough) is_wanted_ = false;
      return;
    }
    asks_every_ = is_wanted_ ? std::min<Clock::duration>(2 * asks_every_, kSeldom)
                             : std::min<Clock::duration>(kTimesLost * away, kSeldom);
    asks_again_at_ = now + asks_every_;
    is_wanted_ = true;
    soon_back_ = 0;
  }

 private:
  static constexpr auto kLost =
      std::chrono::microseconds(100);  // longer than many context switches
  static constexpr auto kLostToPeers = std::chrono::microseconds(500);  // less than a time slice
  static constexpr int kEnough = 8;
  static constexpr int kTimesLost = 25;  // limits the cost of trying again to 4 % at first
  static constexpr auto kSeldom = std::chrono::seconds(1);

  Clock::duration lost_;
  bool is_wanted_ = false;
  int soon_back_ = 0;  ///< consecutive short yields
  Clock::duration asks_every_{0};
  Clock::time_point asks_again_at_{};
};

}  // namespace tutti::collectives
