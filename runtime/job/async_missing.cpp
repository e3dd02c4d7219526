// SPDX-License-Identifier: Apache-2.0
// Asynchronous calls that ranks do not have in common: naps, and the report when the deadline
// passes; whose turn it was, where a batch fails; and how fast the link is, which naps depend on.
#include <algorithm>

#include "collectives/job/fused_layout.hpp"
#include "runtime/base/digest.hpp"
#include "runtime/job/async_calls.hpp"

namespace tutti {

namespace {

// Ranks that have no jobs in common look again after this time.
constexpr auto kNapInVain = std::chrono::milliseconds(1);
constexpr auto kNapOfWaiter = std::chrono::microseconds(50);  // the same, if somebody waits
// What counts of one turn: a job that was suspended does not expire.
constexpr auto kMostCounted = std::chrono::seconds(1);
constexpr std::size_t kMostQueuesNamed = 3;
constexpr double kWeightOfNewest = 0.25;
constexpr std::size_t kLeastTimed = std::size_t{16} << 10;  // less says little of a link
// Pieces that a share has under way between two nodes, 16 of 32 KiB: see lane.cpp. A nap takes as
// long as half of them.
constexpr double kNapBytes = 256 << 10;
constexpr auto kLeastNap = std::chrono::microseconds(50);
constexpr auto kMostNap = std::chrono::milliseconds(2);

}  // namespace

/// Sleeps until a job comes, or it is time to look again. `begin`: of the turn.
void AsyncCalls::napped_in_vain(Clock::time_point begin) {
  {
    std::unique_lock lock(mutex_);
    const std::uint64_t seen = submissions_;
    const bool is_awaited = waiting_->patience.waiters.load() != 0;
    came_.wait_for(lock, is_awaited ? Clock::duration(kNapOfWaiter) : Clock::duration(kNapInVain),
                   [&] { return ends_ || submissions_ != seen; });
  }
  in_vain_ += std::min<Clock::duration>(Clock::now() - begin, kMostCounted);
  if (in_vain_ - asked_at_ < collectives::kInterruptedEvery && in_vain_ >= asked_at_) return;
  asked_at_ = in_vain_;
  if (collectives::interrupted()) {
    engine_.fail(collectives::LocalError{
        ErrorCode::communication,
        "a wait for asynchronous calls that other ranks have not made was interrupted"});
  }
}

/// All ranks have failed with an error that leaves the group as it is. They go on only if they take
/// the same jobs from their queues.
void AsyncCalls::confirm(std::span<const Place> batch) {
  const Patiently patiently(engine_, waiting_->patience, is_beside_);
  Digest digest;
  for (const Place& place : batch) {
    digest.add(std::uint64_t{place.client}).add(std::uint64_t{place.queue});
  }
  const auto describe = [&] {
    return "asynchronous call of " + this->describe(batch) +
           ", whose turn it was here (every rank gives a call equal priority)";
  };
  engine_.run({.kind = collectives::Kind::agreement,
               .digest = digest.value(),
               .segments = {},
               .describe = describe});
}

/// All ranks are here, and some rank has waited for too long. They tell each other what they have,
/// and whether a thread waits, which can say what is wrong: a program that is ending may have none.
void AsyncCalls::expire(std::vector<std::uint8_t> own) {
  const Patiently patiently(engine_, waiting_->patience, is_beside_);
  const collectives::Topology& topology = engine_.topology();
  const int ranks = topology.size;
  own.back() = waiting_->patience.waiters.load() != 0 ? 1 : 0;
  std::vector<std::uint8_t> all(own.size() * static_cast<std::size_t>(ranks));
  const auto segments = collectives::allgather_segments(
      ranks, reinterpret_cast<const std::byte*>(own.data()),
      reinterpret_cast<std::byte*>(all.data()), own.size(), DType::uint8);
  const auto describe = [] { return std::string("report of asynchronous calls that do not come"); };
  engine_.run({.kind = collectives::Kind::allgather, .segments = segments, .describe = describe});
  int reporter = 0;
  while (reporter < ranks && all[static_cast<std::size_t>(reporter + 1) * own.size() - 1] == 0) {
    ++reporter;
  }
  if (reporter == ranks) reporter = 0;
  const std::string text =
      collectives::name_of(topology, reporter) + ": asynchronous calls have waited " +
      collectives::in_seconds(deadline_) + " for the same call on all ranks. " +
      describe_missing(all) + ". Make the same calls on every rank, or raise TUTTI_TIMEOUT";
  engine_.raise_failure(ErrorCode::timeout, text);
  throw Error(ErrorCode::timeout, text, ErrorScope::failed, topology.rank == reporter);
}

/// `all`: what own_counts() gave on each rank.
std::string AsyncCalls::describe_missing(std::span<const std::uint8_t> all) {
  const std::lock_guard lock(mutex_);
  const int ranks = engine_.topology().size;
  const std::size_t each = all.size() / static_cast<std::size_t>(ranks);
  std::string text;
  std::size_t named = 0;
  std::size_t index = 0;
  for (std::size_t client = 0; client < clients_.size(); ++client) {
    if (clients_[client].is_dropped) continue;
    ++index;
    for (std::size_t queue = 0; queue < clients_[client].queues.size(); ++queue, ++index) {
      std::vector<int> have;
      std::vector<int> lack;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto count = all[static_cast<std::size_t>(rank) * each + index];
        (count == kHasJob ? have : lack).push_back(rank);
      }
      if (have.empty() || lack.empty() || ++named > kMostQueuesNamed) continue;
      text += (text.empty() ? "" : "; ") + name_of({client, queue}) + ": " +
              names_of(engine_.topology(), have) + " made the call, and " +
              names_of(engine_.topology(), lack) + " did not";
    }
  }
  if (named > kMostQueuesNamed)
    text += "; and " + std::to_string(named - kMostQueuesNamed) + " more";
  return text;
}

std::string AsyncCalls::describe_ready() {
  const std::lock_guard lock(mutex_);
  return ready_in_words();
}

/// Under mutex_.
std::string AsyncCalls::ready_in_words() const {
  std::vector<Place> ready;
  for (std::size_t client = 0; client < clients_.size(); ++client) {
    for (std::size_t queue = 0; queue < clients_[client].queues.size(); ++queue) {
      if (!clients_[client].queues[queue].empty()) ready.push_back({client, queue});
    }
  }
  return ready.empty() ? "none" : in_words(ready);
}

std::string AsyncCalls::describe(std::span<const Place> batch) {
  const std::lock_guard lock(mutex_);
  return in_words(batch);
}

/// Under mutex_. The first of them, and how many more there are.
std::string AsyncCalls::in_words(std::span<const Place> batch) const {
  std::string text;
  for (const Place& place : batch.first(std::min(batch.size(), kMostQueuesNamed))) {
    text += (text.empty() ? "" : ", ") + name_of(place);
  }
  if (batch.size() > kMostQueuesNamed)
    text += " and " + std::to_string(batch.size() - kMostQueuesNamed) + " more";
  return text;
}

/// Under mutex_.
std::string AsyncCalls::name_of(const Place& place) const {
  const AsyncClient* client = clients_[place.client].client;
  if (client == nullptr) return "a call of a store that this rank has destroyed";
  return client->name_of_queue(place.queue);
}

// --- how fast the link is ------------------------------------------------------------------------

void AsyncCalls::learn_speed(std::size_t bytes, Clock::duration time) {
  if (bytes < kLeastTimed) return;
  const double seconds = std::chrono::duration<double>(time).count();
  const double speed = static_cast<double>(bytes) / std::max(seconds, 1e-6);
  bytes_per_second_ += kWeightOfNewest * (speed - bytes_per_second_);
  const std::chrono::duration<double> nap(kNapBytes / bytes_per_second_);
  const auto bounded = std::clamp<Clock::duration>(std::chrono::duration_cast<Clock::duration>(nap),
                                                   kLeastNap, kMostNap);
  waiting_->patience.nap.store(std::chrono::nanoseconds(bounded).count());
}

}  // namespace tutti
