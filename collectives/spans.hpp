// SPDX-License-Identifier: Apache-2.0
// When this rank did what, for a trace of the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/record.hpp"

namespace tutti::collectives {

struct CallTotals;

/// What a call spends its time on.
enum class Activity : std::uint8_t {
  call,  ///< the whole call
  prepare,
  wait_for_ranks,  ///< the ranks of this node
  wait_for_nodes,
  copy_in,
  reduce,
  reduce_and_update,
  wait_in_node,  ///< until the other ranks have summed their shares
  network,
  copy_out,
  update,
  finish,  ///< what the store does after the last operation
};

/// One stretch of time, in ticks.
struct Span {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  const CallTotals* totals = nullptr;  ///< null unless this is a call
  std::uint64_t value = 0;             ///< a call's bytes; who came last, in wait_for_ranks
  Activity activity = Activity::call;
};

/// The spans of a rank, in memory, up to a number. A call is a span, and so is each activity inside
/// it. Activities follow each other without gaps, so each costs one reading of the clock.
class SpanLog {
 public:
  explicit SpanLog(std::size_t most) : most_(most) { spans_.reserve(most); }

  /// A call begins, with preparing.
  void begin_call(std::uint64_t now) noexcept {
    activity_ = Activity::prepare;
    since_ = now;
    value_ = 0;
    has_activities_ = false;
  }
  /// Another activity begins.
  void switch_to(Activity activity) noexcept {
    if (activity == activity_) return;
    close(ticks());
    activity_ = activity;
  }
  [[nodiscard]] Activity activity() const noexcept { return activity_; }
  /// What there is to say of the current activity.
  void note(std::uint64_t value) noexcept { value_ = value; }
  /// The call ends. One that only prepares has no activities.
  void end_call(std::uint64_t begun, std::uint64_t now, const CallTotals& totals,
                std::uint64_t bytes) noexcept {
    if (has_activities_) close(now);
    add({begun, now, &totals, bytes, Activity::call});
  }

  [[nodiscard]] std::span<const Span> spans() const { return spans_; }
  /// Spans for which there was no room.
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  void close(std::uint64_t now) noexcept {
    add({since_, now, nullptr, value_, activity_});
    since_ = now;
    value_ = 0;
    has_activities_ = true;
  }
  void add(const Span& span) noexcept {
    if (spans_.size() == most_) {
      ++dropped_;
    } else {
      spans_.push_back(span);
    }
  }

  std::size_t most_;
  std::vector<Span> spans_;
  std::uint64_t dropped_ = 0;
  Activity activity_ = Activity::call;
  std::uint64_t since_ = 0;
  std::uint64_t value_ = 0;
  bool has_activities_ = false;
};

}  // namespace tutti::collectives
