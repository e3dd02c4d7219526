// SPDX-License-Identifier: Apache-2.0
// What calls cost this rank: how often they ran, how long, how long they waited, and for which
// rank.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tutti/key.hpp"

#include "collectives/job/function_ref.hpp"
#include "collectives/wait/record.hpp"
#include "collectives/wait/spans.hpp"

namespace tutti::collectives {

enum class Kind : std::uint8_t;
inline constexpr std::size_t kKinds = 11;

/// Calls in which one certain rank was the last to arrive.
struct Lateness {
  std::uint64_t calls = 0;
  std::uint64_t waited_ticks = 0;
};

/// A map that finds again at once what it found of late. Not to be copied: it points into itself.
class LatenessByRank {
 public:
  LatenessByRank() = default;
  LatenessByRank(LatenessByRank&&) = default;
  LatenessByRank& operator=(LatenessByRank&&) = default;

  Lateness& operator[](int rank) {
    Found& found = found_[static_cast<std::size_t>(rank) % found_.size()];
    if (found.lateness == nullptr || found.rank != rank) found = {rank, &all_[rank]};
    return *found.lateness;
  }
  [[nodiscard]] auto begin() const { return all_.begin(); }
  [[nodiscard]] auto end() const { return all_.end(); }

 private:
  struct Found {
    int rank = 0;
    Lateness* lateness = nullptr;
  };
  std::unordered_map<int, Lateness> all_;
  std::array<Found, 8> found_{};
};

/// Calls of one kind, with one list of keys.
struct CallTotals {
  std::string call;  ///< "push"
  std::vector<Key> keys;
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  std::uint64_t ticks = 0;
  std::uint64_t waited_ticks = 0;  ///< the part of `ticks` until every rank had arrived
  LatenessByRank late{};           ///< by the rank that arrived last
};

/// Adds up what one rank's calls cost, always: two readings of the processor's clock per call, and
/// a third if it had to wait.
///
/// A call of the program begins with enter() and ends with leave(). An operation of the engine
/// inside a call belongs to it; an operation outside of any call counts as a call. One thread at a
/// time.
class StatisticsCollector {
 public:
  StatisticsCollector();
  StatisticsCollector(const StatisticsCollector&) = delete;
  StatisticsCollector& operator=(const StatisticsCollector&) = delete;

  /// A call begins; `name` lives on. Calls inside a call, as an updater makes them, count as part
  /// of it.
  void enter(const char* name) noexcept {
    if (depth_++ == 0) begin(name, ticks());
  }
  /// Says what the call is counted as. Without this, it is counted by its name, without keys.
  void count_as(CallTotals& totals, std::uint64_t bytes) noexcept {
    if (depth_ != 1) return;
    totals_ = &totals;
    bytes_ = bytes;
  }
  /// The bytes of a call that is counted by its name.
  void count_bytes(std::uint64_t bytes) noexcept {
    if (depth_ == 1) bytes_ = bytes;
  }
  void leave() noexcept {
    if (--depth_ == 0) add(ticks());
  }

  /// An operation of the engine begins; returns the time, in ticks.
  std::uint64_t enter_operation() noexcept {
    const bool is_call = depth_ == 0;
    const bool is_first = operations_++ == 0;
    if (is_call || !is_first) {
      const std::uint64_t now = ticks();
      if (is_call) begin(nullptr, now);
      ++depth_;
      return now;
    }
    ++depth_;
    return begun_;
  }
  /// `now`: in ticks; 0 to look it up.
  void leave_operation(Kind kind, std::uint64_t bytes, std::uint64_t now = 0) noexcept {
    if (--depth_ > 0) {
      if (spans_ != nullptr) spans_->switch_to(Activity::finish);
      return;
    }
    kind_ = kind;
    bytes_ = bytes;
    add(now != 0 ? now : ticks());
  }

  /// All ranks have come to an operation, this one having waited since a time, or not if that is 0.
  /// The first of several operations of a call says who came last. Returns the time, in ticks, if
  /// this rank waited, and 0 if not.
  std::uint64_t met(std::uint64_t waiting_since, int last_rank) noexcept {
    const std::uint64_t now = waiting_since != 0 ? ticks() : 0;
    waited_ += now - waiting_since;
    if (last_rank_ < 0) last_rank_ = last_rank;
    if (spans_ != nullptr) spans_->note(static_cast<std::uint64_t>(last_rank));
    return now;
  }

  /// An asynchronous call is done. It counts from the program's call on, and waits until its turn
  /// comes. Errors: std::bad_alloc.
  void count_async(CallTotals& totals, const AsyncTimes& times, std::uint64_t bytes);
  /// The trace alone has it: what carried it out is counted by itself. Errors: std::bad_alloc.
  void trace_async(const char* name, const AsyncTimes& times, std::uint64_t bytes);
  /// The program has waited for asynchronous calls. Errors: std::bad_alloc.
  void count_async_waits(std::uint64_t waits, std::uint64_t waited_ticks);

  /// The rank that the last call waited for; -1 if it did not wait.
  [[nodiscard]] int waited_for() const noexcept { return waited_ != 0 ? last_rank_ : -1; }

  /// Keeps from now on what happens when, up to this many spans.
  void keep_spans(std::size_t most) { spans_ = std::make_unique<SpanLog>(most); }
  /// Null if they are not kept.
  [[nodiscard]] SpanLog* spans() const noexcept { return spans_.get(); }

  /// Something to do after calls, for example to write down what they cost. It may not throw.
  void set_listener(std::function<void()> listener) { listener_ = std::move(listener); }

  /// The totals for a number that the caller has made up of the call and its keys; what `make`
  /// returns if it is new. It stays where it is.
  CallTotals& totals_for(std::uint64_t id, FunctionRef<CallTotals()> make);

  /// All totals, in the order of their first calls.
  [[nodiscard]] std::span<const std::unique_ptr<CallTotals>> all() const { return order_; }
  /// The length of a tick, measured since this collector was made.
  [[nodiscard]] double seconds_per_tick() const;
  /// Since this collector was made.
  [[nodiscard]] double seconds() const;
  [[nodiscard]] std::uint64_t first_ticks() const { return first_.ticks; }
  [[nodiscard]] std::chrono::steady_clock::time_point first_time() const { return first_.time; }

 private:
  void begin(const char* name, std::uint64_t now) noexcept {
    name_ = name;
    begun_ = now;
    waited_ = 0;
    bytes_ = 0;
    last_rank_ = -1;
    totals_ = nullptr;
    operations_ = name == nullptr ? 1 : 0;
    if (spans_ != nullptr) spans_->begin_call(now);
  }
  void add(std::uint64_t now) noexcept;
  CallTotals& default_totals() {
    const bool is_known = name_ == nullptr && of_kind_[static_cast<std::size_t>(kind_)] != nullptr;
    return is_known ? *of_kind_[static_cast<std::size_t>(kind_)] : find_default_totals();
  }
  CallTotals& find_default_totals();
  CallTotals& totals_of_name(const char* name);

  struct Moment {
    std::uint64_t ticks;
    std::chrono::steady_clock::time_point time;
  };
  static Moment this_moment();

  const Moment first_;
  int depth_ = 0;
  const char* name_ = nullptr;  ///< the current call; null for an operation outside of any
  Kind kind_{};                 ///< what such an operation is
  std::uint64_t begun_ = 0;
  std::uint64_t waited_ = 0;
  std::uint64_t bytes_ = 0;
  int last_rank_ = -1;
  int operations_ = 0;
  CallTotals* totals_ = nullptr;
  std::array<CallTotals*, kKinds> of_kind_{};  ///< by Kind; null until there is one
  std::unordered_map<std::uint64_t, CallTotals*> by_id_;
  std::vector<std::unique_ptr<CallTotals>> order_;
  std::unique_ptr<SpanLog> spans_;
  std::function<void()> listener_;
};

/// A call of the program, while this lives.
class CountedCall {
 public:
  CountedCall(StatisticsCollector& statistics, const char* name) : statistics_(statistics) {
    statistics_.enter(name);
  }
  ~CountedCall() { statistics_.leave(); }
  CountedCall(const CountedCall&) = delete;
  CountedCall& operator=(const CountedCall&) = delete;

 private:
  StatisticsCollector& statistics_;
};

}  // namespace tutti::collectives
