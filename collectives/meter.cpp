// SPDX-License-Identifier: Apache-2.0
#include "collectives/meter.hpp"

#include <new>

#include "collectives/call.hpp"

namespace tutti::collectives {

namespace {

/// Names of calls that no store makes.
const char* name_of(Kind kind) noexcept {
  switch (kind) {
    case Kind::barrier:
      return "barrier";
    case Kind::agreement:
      return "agree";
    case Kind::allreduce:
      return "allreduce";
    case Kind::broadcast:
      return "broadcast";
    case Kind::reduce:
      return "reduce";
    case Kind::reduce_scatter:
      return "reduce_scatter";
    case Kind::allgather:
      return "allgather";
    case Kind::refusal:
      return "refused call";
  }
  return "unknown";
}

}  // namespace

Meter::Meter() : first_ticks_(ticks()), first_time_(std::chrono::steady_clock::now()) {}

Tally& Meter::tally(std::uint64_t id, FunctionRef<Tally()> make) {
  const auto found = by_id_.find(id);
  if (found != by_id_.end()) return *found->second;
  order_.push_back(std::make_unique<Tally>(make()));
  return *(by_id_[id] = order_.back().get());
}

Tally& Meter::default_tally() {
  if (name_ != nullptr) {
    const std::uint64_t id = std::hash<std::string_view>()(name_);
    return tally(id, [&] { return Tally{.call = name_, .keys = {}}; });
  }
  const auto index = static_cast<std::size_t>(kind_);
  if (of_kind_.size() <= index) of_kind_.resize(index + 1);
  if (of_kind_[index] == nullptr) {
    order_.push_back(std::make_unique<Tally>(Tally{.call = name_of(kind_), .keys = {}}));
    of_kind_[index] = order_.back().get();
  }
  return *of_kind_[index];
}

/// What cannot be counted for want of memory is not worth the job.
void Meter::add() noexcept {
  const std::uint64_t now = ticks();
  try {
    add_to(tally_ != nullptr ? *tally_ : default_tally(), now);
  } catch (const std::bad_alloc&) {
  }
  if (listener_) listener_();
}

void Meter::add_to(Tally& tally, std::uint64_t now) {
  ++tally.calls;
  tally.bytes += bytes_;
  tally.ticks += now - begun_;
  if (spans_ != nullptr) spans_->end_call(begun_, now, tally, bytes_);
  if (last_rank_ < 0) return;
  tally.waited_ticks += waited_;
  Lateness& late = tally.late[last_rank_];
  ++late.calls;
  late.waited_ticks += waited_;
}

double Meter::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - first_time_).count();
}

double Meter::seconds_per_tick() const {
  const std::uint64_t passed = ticks() - first_ticks_;
  return passed == 0 ? 0.0 : seconds() / static_cast<double>(passed);
}

}  // namespace tutti::collectives
