// SPDX-License-Identifier: Apache-2.0
#include "collectives/wait/long_waits.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "collectives/text/numbers.hpp"

namespace tutti::collectives {

namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kRelease = std::memory_order_release;

constexpr int kStateBits = 2;
enum State : std::uint64_t { kFree, kWritten, kShown };
State state_of(std::uint64_t state) {
  return static_cast<State>(state & ((std::uint64_t{1} << kStateBits) - 1));
}
/// Returns the state of a free place that this change leads to.
std::uint64_t freed(std::uint64_t state) { return ((state >> kStateBits) + 1) << kStateBits; }

std::int64_t in_ns(LongWaits::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

LongWaits::Shown::Shown(LongWaits& waits, std::uint64_t group, std::string_view words,
                        Clock::time_point since, std::size_t kept) noexcept {
  for (Place& place : std::span(waits.places_).subspan(kept)) {
    std::uint64_t state = place.state.load(kRelaxed);
    if (state_of(state) != kFree || !place.state.compare_exchange_strong(state, state + kWritten)) {
      continue;
    }
    // Words of an earlier wait may follow the end of these.
    const std::size_t bytes = std::min(words.size(), kLongest);
    const std::size_t used = std::min(bytes / sizeof(std::uint64_t) + 1, kWords);
    std::array<std::uint64_t, kWords> copied;
    copied[used - 1] = 0;
    std::memcpy(copied.data(), words.data(), bytes);
    place.group.store(group, kRelease);
    place.since.store(in_ns(since), kRelease);
    for (std::size_t i = 0; i < used; ++i) place.words[i].store(copied[i], kRelease);
    place.state.store(state + kShown, kRelease);
    state_ = &place.state;
    return;
  }
}

LongWaits::Shown::~Shown() {
  if (state_ != nullptr) state_->store(freed(state_->load(kRelaxed)), kRelease);
}

std::string LongWaits::in_other_groups(std::uint64_t group) const {
  std::string text;
  for (const Place& place : places_) {
    const std::uint64_t state = place.state.load(std::memory_order_acquire);
    if (state_of(state) != kShown || place.group.load(kRelaxed) == group) continue;
    std::array<std::uint64_t, kWords> copied{};
    for (std::size_t i = 0; i < kWords; ++i) copied[i] = place.words[i].load(kRelaxed);
    const std::int64_t since = place.since.load(kRelaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (place.state.load(kRelaxed) != state) continue;
    const auto* bytes = reinterpret_cast<const char*>(copied.data());
    const double seconds = static_cast<double>(in_ns(Clock::now()) - since) * 1e-9;
    text += (text.empty() ? "waits in " : " and in ") +
            std::string(bytes, std::find(bytes, bytes + kLongest, '\0')) + " for " +
            significant(seconds, 3) + " s";
  }
  return text;
}

bool LongWaits::shows(std::uint64_t group) const {
  return std::ranges::any_of(places_, [&](const Place& place) {
    const std::uint64_t state = place.state.load(std::memory_order_acquire);
    return state_of(state) == kShown && place.group.load(kRelaxed) == group;
  });
}

}  // namespace tutti::collectives
