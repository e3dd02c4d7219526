// SPDX-License-Identifier: Apache-2.0
// Whether other programs want the core that a thread waits on.
//
// A scheduler for fair shares (Linux: CFS, and EEVDF from 6.6 on) gives a thread that sleeps its
// core back as soon as it is woken, because it has had less than its share. One that yields says
// that it has had its turn: a program that computes then has the core for a time slice of 3 or 4
// milliseconds. Where nobody else wants the core, a yield comes back within a microsecond, and
// costs less than to sleep and to be woken. So a wait has to know which of the two holds:
//
//     yields that come back soon               one that does not       sleeps, no yield
//     |.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|----------------------|zzzzzz|  |zzzzz|  |zz|.|.|
//     nobody wants the core                                       wanted, for now      asks again
//
// The yield itself tells, at the cost of two looks at the clock: collectives/wait/README.md has
// what that gains.
#pragma once

#include <algorithm>
#include <chrono>

namespace tutti::collectives {

/// Whether other programs want this thread's core, as its own yields have shown.
class CoreShare {
 public:
  using Clock = std::chrono::steady_clock;

  /// `peers_share`: ranks of the job share cores. They may compute for a while, too, but sooner or
  /// later each waits for this one.
  explicit CoreShare(bool peers_share) : lost_(peers_share ? kLostToPeers : kLost) {}

  /// True if the next wait is better spent asleep. False at times though the core was wanted, so
  /// that the next yields find out whether it still is.
  [[nodiscard]] bool is_wanted(Clock::time_point now) const {
    return is_wanted_ && now < asks_again_at_;
  }
  /// is_wanted() as the last yields showed it, without a look at the clock.
  [[nodiscard]] bool was_wanted() const { return is_wanted_; }

  /// A yield has come back after this time.
  void came_back(Clock::duration away, Clock::time_point now) {
    if (away < lost_) {
      // A program that has had more than its share lets one or two yields come back at once.
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
  static constexpr auto kLost = std::chrono::microseconds(100);         // many switches
  static constexpr auto kLostToPeers = std::chrono::microseconds(500);  // below a time slice
  static constexpr int kEnough = 8;
  static constexpr int kTimesLost = 25;  // so that to ask costs 4 % at first
  static constexpr auto kSeldom = std::chrono::seconds(1);

  Clock::duration lost_;
  bool is_wanted_ = false;
  int soon_back_ = 0;  ///< yields in a row
  Clock::duration asks_every_{0};
  Clock::time_point asks_again_at_{};
};

}  // namespace tutti::collectives
