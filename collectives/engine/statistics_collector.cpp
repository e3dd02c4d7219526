// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/statistics_collector.hpp"

#include <algorithm>
#include <limits>
#include <new>

#include "collectives/job/operation.hpp"

namespace tutti::collectives {

static_assert(static_cast<std::size_t>(Kind::refusal) == kKinds - 1);

namespace {

/// Returns the name of an operation outside of any call of a store.
const char* name_of(Kind kind) noexcept {
  return kind == Kind::refusal ? "refused call" : to_string(of_kind(kind));
}

}  // namespace

/// Reads ticks and clock several times, and returns the pair that is closest together, because a
/// thread may lose its core between the two.
StatisticsCollector::Moment StatisticsCollector::this_moment() {
  Moment best{};
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t before = ticks();
    const auto time = std::chrono::steady_clock::now();
    const std::uint64_t passed = ticks() - before;
    if (passed < least) best = {before + passed / 2, time};
    least = std::min(least, passed);
  }
  return best;
}

StatisticsCollector::StatisticsCollector() : first_(this_moment()) {}

CallTotals& StatisticsCollector::totals_for(std::uint64_t id, FunctionRef<CallTotals()> make) {
  const auto found = by_id_.find(id);
  if (found != by_id_.end()) return *found->second;
  order_.push_back(std::make_unique<CallTotals>(make()));
  return *(by_id_[id] = order_.back().get());
}

CallTotals& StatisticsCollector::find_default_totals() {
  if (name_ != nullptr) return totals_of_name(name_);
  order_.push_back(std::make_unique<CallTotals>(CallTotals{.call = name_of(kind_), .keys = {}}));
  return *(of_kind_[static_cast<std::size_t>(kind_)] = order_.back().get());
}

CallTotals& StatisticsCollector::totals_of_name(const char* name) {
  const std::uint64_t id = std::hash<std::string_view>()(name);
  return totals_for(id, [&] { return CallTotals{.call = name, .keys = {}}; });
}

void StatisticsCollector::count_async(CallTotals& totals, const AsyncTimes& times,
                                      std::uint64_t bytes) {
  ++totals.calls;
  totals.bytes += bytes;
  totals.ticks += times.done - times.submitted;
  totals.waited_ticks += times.begun - times.submitted;
  if (times.last_rank >= 0) {
    Lateness& late = totals.late[times.last_rank];
    ++late.calls;
    late.waited_ticks += times.met - times.submitted;
  }
  if (spans_ != nullptr) spans_->add({times, &totals, bytes});
}

void StatisticsCollector::trace_async(const char* name, const AsyncTimes& times,
                                      std::uint64_t bytes) {
  if (spans_ != nullptr) spans_->add({times, &totals_of_name(name), bytes});
}

void StatisticsCollector::count_async_waits(std::uint64_t waits, std::uint64_t waited_ticks) {
  CallTotals& totals = totals_of_name("async_wait");
  totals.calls += waits;
  totals.ticks += waited_ticks;
}

/// Adds the current call to its totals. If there is no memory for that, the call is not counted.
void StatisticsCollector::add(std::uint64_t now) noexcept {
  try {
    CallTotals& totals = totals_ != nullptr ? *totals_ : default_totals();
    ++totals.calls;
    totals.bytes += bytes_;
    totals.ticks += now - begun_;
    if (spans_ != nullptr) spans_->end_call(begun_, now, totals, bytes_);
    if (last_rank_ >= 0) {
      totals.waited_ticks += waited_;
      Lateness& late = totals.late[last_rank_];
      ++late.calls;
      late.waited_ticks += waited_;
    }
  } catch (const std::bad_alloc&) {
  }
  if (listener_) listener_();
}

double StatisticsCollector::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - first_.time).count();
}

double StatisticsCollector::seconds_per_tick() const {
  const Moment moment = this_moment();
  const std::uint64_t passed = moment.ticks - first_.ticks;
  const std::chrono::duration<double> time = moment.time - first_.time;
  return passed == 0 ? 0.0 : time.count() / static_cast<double>(passed);
}

}  // namespace tutti::collectives
