// SPDX-License-Identifier: Apache-2.0
// StatisticsCollector: the number and the duration of calls on this rank, the time that they
// waited, and the rank that they waited for.
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

/// The calls in which a certain rank was the last to arrive.
struct Lateness {
  std::uint64_t calls = 0;
  std::uint64_t waited_ticks = 0;
};

/// A map that remembers the entry found last. It cannot be copied, because it points into itself.
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

/// The totals of calls of one kind, with one list of keys.
struct CallTotals {
  std::string call;  ///< such as "push"
  std::vector<Key> keys;
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  std::uint64_t ticks = 0;
  std::uint64_t waited_ticks = 0;  ///< the part of `ticks` before all ranks had arrived
  LatenessByRank late{};           ///< by the rank that arrived last
};

/// Adds up the cost of one rank's calls. It is always on: it reads the processor's clock twice per
/// call, and a third time if the call had to wait.
///
/// A call of the program begins with enter() and ends with leave(). An operation of the engine
/// inside a call belongs to it; an operation outside of any call counts as a call. One thread at a
/// time.
class StatisticsCollector {
 public:
  StatisticsCollector();
  StatisticsCollector(const StatisticsCollector&) = delete;
  StatisticsCollector& operator=(const StatisticsCollector&) = delete;

  /// Begins a call; `name` must stay valid. Calls within a call, such as those of an updater, count
  /// as part of it.
  void enter(const char* name) noexcept {
    if (depth_++ == 0) begin(name, ticks());
  }
  /// Sets the totals to which the call is added. Without it, the call is counted by name, without
  /// keys.
  void count_as(CallTotals& totals, std::uint64_t bytes) noexcept {
    if (depth_ != 1) return;
    totals_ = &totals;
    bytes_ = bytes;
  }
  /// Sets the bytes of a call that is counted by name.
  void count_bytes(std::uint64_t bytes) noexcept {
    if (depth_ == 1) bytes_ = bytes;
  }
  void leave() noexcept {
    if (--depth_ == 0) add(ticks());
  }

  /// Begins an operation of the engine, and returns the time, in ticks.
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
  /// Ends an operation. `now` is the time in ticks, or 0 if the clock is to be read.
  void leave_operation(Kind kind, std::uint64_t bytes, std::uint64_t now = 0) noexcept {
    if (--depth_ > 0) {
      if (spans_ != nullptr) spans_->switch_to(Activity::finish);
      return;
    }
    kind_ = kind;
    bytes_ = bytes;
    add(now != 0 ? now : ticks());
  }

  /// Records that all ranks have arrived at an operation, for which this rank has waited since
  /// `waiting_since`, or not at all if that is 0. The last rank of a call is that of its first
  /// operation. Returns the time in ticks if this rank waited, else 0.
  std::uint64_t met(std::uint64_t waiting_since, int last_rank) noexcept {
    const std::uint64_t now = waiting_since != 0 ? ticks() : 0;
    waited_ += now - waiting_since;
    if (last_rank_ < 0) last_rank_ = last_rank;
    if (spans_ != nullptr) spans_->note(static_cast<std::uint64_t>(last_rank));
    return now;
  }

  /// Counts an asynchronous call that is done. Its duration begins with the program's call, and its
  /// waiting time ends with its turn. Errors: std::bad_alloc.
  void count_async(CallTotals& totals, const AsyncTimes& times, std::uint64_t bytes);
  /// Adds an asynchronous call only to the trace, because the operations that carried it out are
  /// counted. Errors: std::bad_alloc.
  void trace_async(const char* name, const AsyncTimes& times, std::uint64_t bytes);
  /// Counts waits of the program for asynchronous calls. Errors: std::bad_alloc.
  void count_async_waits(std::uint64_t waits, std::uint64_t waited_ticks);

  /// Returns the rank that the last call waited for; -1 if it did not wait.
  [[nodiscard]] int waited_for() const noexcept { return waited_ != 0 ? last_rank_ : -1; }

  /// Records the activities of all further calls, up to this many spans.
  void keep_spans(std::size_t most) { spans_ = std::make_unique<SpanLog>(most); }
  /// Returns the recorded spans, or null if none are recorded.
  [[nodiscard]] SpanLog* spans() const noexcept { return spans_.get(); }

  /// Sets a function to call after each call, for example to write the totals. It must not throw.
  void set_listener(std::function<void()> listener) { listener_ = std::move(listener); }

  /// Returns the totals for an id that the caller has computed from the call and its keys; a new id
  /// gets those that `make` returns. The reference stays valid.
  CallTotals& totals_for(std::uint64_t id, FunctionRef<CallTotals()> make);

  /// Returns all totals, in the order of their first calls.
  [[nodiscard]] std::span<const std::unique_ptr<CallTotals>> all() const { return order_; }
  /// Returns the length of a tick, measured since the construction of this object.
  [[nodiscard]] double seconds_per_tick() const;
  /// Returns the time since the construction of this object.
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
  /// Name of the current call; null for an operation outside of any call.
  const char* name_ = nullptr;
  Kind kind_{};  ///< kind of such an operation
  std::uint64_t begun_ = 0;
  std::uint64_t waited_ = 0;
  std::uint64_t bytes_ = 0;
  int last_rank_ = -1;
  int operations_ = 0;
  CallTotals* totals_ = nullptr;
  std::array<CallTotals*, kKinds> of_kind_{};  ///< indexed by Kind; null if there is none yet
  std::unordered_map<std::uint64_t, CallTotals*> by_id_;
  std::vector<std::unique_ptr<CallTotals>> order_;
  std::unique_ptr<SpanLog> spans_;
  std::function<void()> listener_;
};

/// Counts a call of the program during its lifetime.
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
