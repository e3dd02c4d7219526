// SPDX-License-Identifier: Apache-2.0
// SpanLog: the activities of this rank over time, for a trace of the job.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "collectives/wait/record.hpp"

namespace tutti::collectives {

struct CallTotals;

/// The activities that the time of a call is divided into.
enum class Activity : std::uint8_t {
  call,  ///< a whole call
  prepare,
  wait_for_ranks,  ///< waits for the ranks of this node
  wait_for_nodes,
  copy_in,
  reduce,
  reduce_and_update,
  wait_in_node,  ///< waits until the other ranks of the node have summed their shares
  network,
  copy_out,
  update,
  finish,  ///< what the store does after the last operation of a call
};

/// An interval of time, in ticks.
struct Span {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  const CallTotals* totals = nullptr;  ///< set only for a whole call
  std::uint64_t value = 0;  ///< bytes of a call; the rank that came last, for wait_for_ranks
  Activity activity = Activity::call;
  std::uint8_t route = 0;  ///< 1 + Route of the data in a whole call; 0 if no data travelled
};

/// The stages of an asynchronous call of one key, in ticks; 0 for those not reached yet.
struct AsyncTimes {
  std::uint64_t submitted = 0;  ///< the program made the call
  std::uint64_t met = 0;        ///< all ranks have made the call
  std::uint64_t begun = 0;      ///< it was taken from its queue
  std::uint64_t moved = 0;      ///< the sum is complete; what is left is the update
  std::uint64_t done = 0;
  int last_rank = -1;  ///< a rank that had not made the call when others had; -1 if none was seen
};

struct AsyncSpan {
  AsyncTimes times;
  const CallTotals* totals = nullptr;
  std::uint64_t bytes = 0;
};

/// The asynchronous calls from the first one until none is pending: typically a step of a training
/// loop.
struct AsyncStep {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  std::uint64_t busy = 0;    ///< time in which a thread carried them out
  std::uint64_t waited = 0;  ///< time in which the program waited for them
};

/// Returns the share of communication that took place while the program did something else.
inline double hidden_share(double busy, double waited) {
  return busy <= 0 ? 0 : std::max(0.0, 1 - waited / busy);
}

/// The spans of a rank, in memory, up to a maximum number. A call is a span, and so is each
/// activity within it. Activities follow each other without gaps, so each costs one reading of the
/// clock.
class SpanLog {
 public:
  explicit SpanLog(std::size_t most) : most_(most) { spans_.reserve(most); }

  /// Begins a call, with the activity `prepare`.
  void begin_call(std::uint64_t now) noexcept {
    activity_ = Activity::prepare;
    since_ = now;
    value_ = 0;
    route_ = 0;
    has_activities_ = false;
  }
  /// Ends the current activity and begins another one.
  void switch_to(Activity activity) noexcept {
    if (activity == activity_) return;
    close(ticks());
    activity_ = activity;
  }
  [[nodiscard]] Activity activity() const noexcept { return activity_; }
  /// Sets the value of the current activity, see Span::value.
  void note(std::uint64_t value) noexcept { value_ = value; }
  /// Sets the route of the call's data, see Span::route.
  void note_route(std::uint8_t route) noexcept { route_ = route; }
  /// Ends the call. If it did nothing but prepare, no activities are recorded.
  void end_call(std::uint64_t begun, std::uint64_t now, const CallTotals& totals,
                std::uint64_t bytes) noexcept {
    if (has_activities_) close(now);
    add({begun, now, &totals, bytes, Activity::call, route_});
  }

  void add(const AsyncSpan& span) noexcept { add_to(async_spans_, span); }
  void add(const AsyncStep& step) noexcept { add_to(async_steps_, step); }

  [[nodiscard]] std::span<const Span> spans() const { return spans_; }
  [[nodiscard]] std::span<const AsyncSpan> async_spans() const { return async_spans_; }
  [[nodiscard]] std::span<const AsyncStep> async_steps() const { return async_steps_; }
  /// Number of spans that were dropped because the log was full.
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

  /// Adds a span or step of asynchronous calls. They are few compared with other spans, so their
  /// memory is allocated on demand.
  template <class One>
  void add_to(std::vector<One>& all, const One& one) noexcept {
    try {
      if (all.size() < most_) return all.push_back(one);
    } catch (const std::bad_alloc&) {
    }
    ++dropped_;
  }

  std::size_t most_;
  std::vector<Span> spans_;
  std::vector<AsyncSpan> async_spans_;
  std::vector<AsyncStep> async_steps_;
  std::uint64_t dropped_ = 0;
  Activity activity_ = Activity::call;
  std::uint64_t since_ = 0;
  std::uint64_t value_ = 0;
  std::uint8_t route_ = 0;
  bool has_activities_ = false;
};

}  // namespace tutti::collectives
