// SPDX-License-Identifier: Apache-2.0
// Of two ranks the higher one says that it is there, and the lower one, which looks for others that
// are, takes one of them. It takes no second one, and the higher one, if it was taken, meets it
// before it goes to one that it has taken itself. So ranks that go to higher ones do not wait in a
// circle.
#include "collectives/engine/meetings.hpp"

#include <utility>

#include "tutti/error.hpp"

namespace tutti::collectives {

namespace {

// Time after which ranks that need each other in different calls are told.
constexpr auto kTellAfter = std::chrono::seconds(1);

// Values of MeetingWords::state. The higher rank sets the first three, and the lower one the last.
constexpr std::uint32_t kAway = 0;
constexpr std::uint32_t kThere = 1;
constexpr std::uint32_t kHasNews = 2;
constexpr std::uint32_t kMeets = 3;

}  // namespace

Meetings::Meetings(const NodeMemory& memory, const Topology& topology, Waiter& waiter, Words words)
    : memory_(memory), topology_(topology), waiter_(waiter), words_(std::move(words)) {}

std::vector<int> Meetings::meet(std::span<const Partner> partners, int awaited,
                                std::uint64_t sequence) {
  const auto put_off = [&](std::uint64_t call) {
    for (int peer = 0; peer < memory_.size(); ++peer) {
      words_(memory_.local_rank, peer)->puts_off.store(call);
    }
    waiter_.wake();
  };
  in_a_call_since_.reset();
  if (awaited < 0) put_off(sequence + 1);
  const auto late = [&] {
    if (awaited >= 0) return std::vector<int>{awaited};
    std::vector<int> ranks;
    for (const Partner& partner : partners) {
      if (!has_come(partner.rank, sequence)) ranks.push_back(partner.rank);
    }
    return ranks;
  };
  int met = -1;
  const auto ready = [&] {
    if (met < 0) met = agree_on_one(partners);
    if (met >= 0) return true;
    if (awaited < 0) return late().empty();
    require_no_call(awaited, sequence);
    return false;
  };
  waiter_.until(ready, late);
  if (awaited < 0) put_off(0);
  std::vector<int> all = withdraw(partners);
  if (met > topology_.rank) all.push_back(met);
  return all;
}

/// Returns the word in which this rank and another one agree to meet; null if the lower one has
/// never been in meet().
std::atomic<std::uint32_t>* Meetings::meeting_with(int rank) const {
  const int local = topology_.local_rank_of(rank);
  const bool is_own = rank > topology_.rank;
  MeetingWords* const words =
      is_own ? words_(memory_.local_rank, local) : words_(local, memory_.local_rank);
  return words == nullptr ? nullptr : &words->state;
}

const RecordBook& Meetings::calls_of(int rank) const {
  return memory_.peers[static_cast<std::size_t>(topology_.local_rank_of(rank))].control().calls;
}

/// True if a rank is in a call of all ranks after this one's last one, or puts it off for messages.
bool Meetings::has_come(int rank, std::uint64_t sequence) const {
  const MeetingWords* const theirs = words_(topology_.local_rank_of(rank), memory_.local_rank);
  return calls_of(rank).newest() > sequence ||
         (theirs != nullptr && theirs->puts_off.load(std::memory_order_acquire) > sequence);
}

/// Tells lower ranks that this one is there, and takes a higher one. Returns a rank that meets this
/// one, or -1.
int Meetings::agree_on_one(std::span<const Partner> partners) {
  bool has_told = false;
  int met = -1;
  for (const Partner& partner : partners) {
    std::atomic<std::uint32_t>* const word = meeting_with(partner.rank);
    if (word == nullptr) continue;
    std::uint32_t state = word->load(std::memory_order_acquire);
    if (partner.rank < topology_.rank) {
      if (state == kMeets) met = partner.rank;
      if (state != kAway) continue;
      word->store(partner.has_news ? kHasNews : kThere, std::memory_order_release);
      has_told = true;
    } else if (met < 0 && (state == kHasNews || (state == kThere && partner.has_news)) &&
               word->compare_exchange_strong(state, kMeets)) {
      met = partner.rank;
      has_told = true;
    }
  }
  if (has_told) waiter_.wake();
  return met;
}

/// Tells lower ranks that this one is away, but for those which have taken it, and returns these.
std::vector<int> Meetings::withdraw(std::span<const Partner> partners) {
  std::vector<int> taken_by;
  for (const Partner& partner : partners) {
    if (partner.rank > topology_.rank) break;
    std::atomic<std::uint32_t>* const word = meeting_with(partner.rank);
    if (word != nullptr && word->exchange(kAway) == kMeets) taken_by.push_back(partner.rank);
  }
  return taken_by;
}

/// Fails the group if the awaited rank waits in a call in which this one would have to take part.
void Meetings::require_no_call(int awaited, std::uint64_t sequence) {
  const RecordBook& calls = calls_of(awaited);
  const std::uint64_t newest = calls.newest();
  const bool is_in_a_call = newest > sequence && calls.is_in(newest);
  const bool is_beyond = newest > sequence && !is_in_a_call;  // and may begin the message yet
  if (is_beyond || !has_come(awaited, sequence)) {
    in_a_call_since_.reset();
    return;
  }
  const auto time = waiter_.now();
  if (!in_a_call_since_) in_a_call_since_ = time;
  if (time - *in_a_call_since_ < kTellAfter) return;
  char words[RecordBook::kWords];
  const std::size_t length = is_in_a_call ? calls.describe(newest, words) : 0;
  waiter_.fail(ErrorCode::mismatch,
               name_of(topology_, topology_.rank) + " waits for a message of " +
                   name_of(topology_, awaited) + ", which waits in " +
                   (length == 0 ? "its next call" : std::string(words, length)) +
                   " of the same group for all ranks; begin the message on both ranks before that "
                   "call, or wait for it after that call");
}

}  // namespace tutti::collectives
