// SPDX-License-Identifier: Apache-2.0
// Whom to blame for a wait that comes to nothing, and in what words.
//
// A rank whose time is up may wait for one that waits itself, for a third. Ranks come to a call at
// different times, so the one that waits for the culprit need not be the first whose time is up:
//
//     rank 0 --waits for--> rank 2 --waits for--> rank 3, which does not come
//          time's up, 2 ->          <- I wait, too
//                                       time's up, 3 ->       no answer: rank 3 is named
//
// So a rank asks those it waits for before it names them: by a Notice in another node, by
// ControlBlock::overdue in its own. One that waits in the same call, or in one before it, says so;
// its time is up then as well, and it asks in its turn. Who is asked and does not answer is named.
// A call costs nothing for that until its deadline, and then one notice for each rank waited for.
#include <algorithm>
#include <utility>

#include "collectives/wait.hpp"

namespace tutti::collectives {

namespace {

using std::chrono::seconds;

constexpr auto kForAnswers = seconds(1);  // but no longer than a deadline
/// Those who wait themselves ask as soon as they are asked, and fail once they have no answer.
constexpr int kForTheirFailure = 4;  // times as long
/// Where many are waited for, some are asked.
constexpr std::size_t kMostAsked = 16;

/// Sets what only grows.
void raise_to(std::atomic<std::uint64_t>& value, std::uint64_t least) {
  std::uint64_t seen = value.load(std::memory_order_relaxed);
  while (seen < least && !value.compare_exchange_weak(seen, least, std::memory_order_relaxed)) {
  }
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

void Waiter::check_leavers(FunctionRef<std::vector<int>()> missing) {
  if (call_ == nullptr) return;
  const bool has_local_leavers = memory_.first().leavers.load(std::memory_order_acquire) != 0;
  if (!has_local_leavers && left_elsewhere_.empty() && nodes_left_.empty()) return;
  std::vector<int> gone;
  bool by_exception = false;
  for (const int rank : missing()) {
    const std::uint64_t left = left_of(rank);
    const std::uint64_t sequence = left & ~kLeftByException;
    if (left == 0 || sequence > call_->sequence) continue;
    gone.push_back(rank);
    by_exception = by_exception || sequence != left;
  }
  if (gone.empty()) return;
  if (by_exception) {  // whose rank prints it
    fail(ErrorCode::communication,
         call_name() + ": " + names_of(topology_, gone) + " ended by an exception of its own",
         /*reporter=*/false);
  }
  fail(ErrorCode::communication,
       call_name() + ": " + names_of(topology_, gone) + " left before this call, which " +
           name_of(topology_, topology_.rank) +
           " waits in; every rank must make the same calls before its store is destroyed");
}

/// As ControlBlock::left, of any rank; 0 if it is not known to have left.
std::uint64_t Waiter::left_of(int rank) const {
  const int local = topology_.local_rank_of(rank);
  if (local >= 0) return memory_.peers[local].control().left.load(std::memory_order_acquire);
  if (const auto found = left_elsewhere_.find(rank); found != left_elsewhere_.end()) {
    return found->second;
  }
  const auto found = nodes_left_.find(topology_.node_of(rank));
  return found == nodes_left_.end() ? 0 : found->second;
}

/// A process that was killed gives no notice.
void Waiter::check_processes(FunctionRef<std::vector<int>()> missing) {
  if (observer_ == nullptr) return;
  std::vector<int> gone;
  for (const int rank : missing()) {
    const int local = topology_.local_rank_of(rank);
    if (local >= 0 && observer_->is_gone(local)) gone.push_back(rank);
  }
  if (gone.empty()) return;
  fail(ErrorCode::communication,
       call_name() + ": " + names_of(topology_, gone) + " ended without a word, which " +
           name_of(topology_, topology_.rank) + " waits for; it was killed or left the program" +
           observations(gone));
}

/// What can be seen of the first of them that anything can be seen of.
std::string Waiter::observations(const std::vector<int>& missing) const {
  for (const int rank : missing) {
    const int local = topology_.local_rank_of(rank);
    if (observer_ == nullptr || local < 0) continue;
    const std::string seen = observer_->describe(local);
    if (!seen.empty()) return "; rank " + std::to_string(rank) + " " + seen;
  }
  return {};
}

std::string Waiter::call_name() const {
  if (call_ == nullptr) return "collective call";
  return call_->describe() + " (call " + std::to_string(call_->sequence) + of_group(topology_) +
         ")";
}

void Waiter::warn(FunctionRef<std::vector<int>()> missing_ranks, Clock::duration waited) const {
  const std::vector<int> missing = missing_ranks();
  const auto is_missing = [&](int rank) { return contains(missing, rank); };
  const auto& local = topology_.local_ranks();  // one rank of the node speaks for it
  const auto speaker = std::find_if_not(local.begin(), local.end(), is_missing);
  const bool speaks = missing.empty() || (speaker != local.end() && *speaker == topology_.rank);
  if (!speaks) return;
  log_.warn("has waited " + in_seconds(waited) + " for " +
            (missing.empty() ? std::string("its GPU") : names_of(topology_, missing)) + " in " +
            call_name());
}

/// Whether a rank that waits in this call, or in a later one for this one, may wait no longer.
bool Waiter::is_overdue_elsewhere() const {
  return call_ != nullptr && !call_->is_message &&
         memory_.first().overdue.load(std::memory_order_relaxed) > call_->sequence;
}

/// A rank that does not wait where it is asked reads this in its next wait, and answers then.
void Waiter::answer(const Notice& question) {
  raise_to(memory_.first().overdue, question.sequence + 1);
  if (call_ == nullptr || call_->is_message || call_->sequence > question.sequence) return;
  Notice notice;
  notice.kind = Notice::Kind::waits_too;
  notice.rank = topology_.rank;
  notice.sequence = question.sequence;
  transport_->notify(question.rank, notice);
}

/// Throws once it is known who is to blame, or can be known no more.
void Waiter::end_overdue(const std::vector<int>& missing, Clock::duration waited,
                         bool is_terminating) {
  if (missing.empty()) expire(missing, waited, is_terminating);
  if (!std::exchange(overdue_.is_so, true)) overdue_.asked_at = waited;
  if (call_ != nullptr && !call_->is_message) ask(missing, waited);
  std::vector<int> silent = overdue_.asked.empty() ? missing : overdue_.asked;
  std::erase_if(silent, [&](int rank) { return waits_too(rank) || !contains(missing, rank); });
  const bool own_time_is_up = waited >= deadline_ || is_terminating;
  const bool some_did_not_come = std::any_of(silent.begin(), silent.end(), [&](int rank) {
    return topology_.local_rank_of(rank) >= 0 && !has_come(rank);
  });
  if (some_did_not_come && own_time_is_up) expire(silent, waited, is_terminating);
  const auto for_answers = std::min<Clock::duration>(kForAnswers, deadline_);
  const auto limit = silent.empty() ? kForTheirFailure * for_answers : for_answers;
  if (waited - overdue_.asked_at < limit) return;
  expire(silent.empty() ? missing : silent, waited, is_terminating);
}

void Waiter::ask(const std::vector<int>& missing, Clock::duration waited) {
  const std::uint64_t mark = call_->sequence + 1;
  raise_to(memory_.control().overdue_too, mark);
  raise_to(memory_.first().overdue, mark);
  for (const int rank : missing) {
    if (overdue_.asked.size() == kMostAsked) return;
    if (contains(overdue_.asked, rank)) continue;
    overdue_.asked.push_back(rank);
    overdue_.asked_at = waited;
    if (topology_.local_rank_of(rank) >= 0 || transport_ == nullptr) continue;
    Notice notice;
    notice.kind = Notice::Kind::overdue;
    notice.rank = topology_.rank;
    notice.sequence = call_->sequence;
    transport_->notify(rank, notice);
  }
}

/// Of a rank of this node: whether it has made this call.
bool Waiter::has_come(int rank) const {
  const int local = topology_.local_rank_of(rank);
  return call_ != nullptr && memory_.peers[local].control().calls.is_in(call_->sequence);
}

/// Whether it has said that it waits itself, since it was asked.
bool Waiter::waits_too(int rank) const {
  if (call_ == nullptr) return false;
  const int local = topology_.local_rank_of(rank);
  if (local < 0) return contains(overdue_.answered, rank);
  const auto& mark = memory_.peers[local].control().overdue_too;
  return mark.load(std::memory_order_relaxed) > call_->sequence;
}

void Waiter::expire(const std::vector<int>& missing, Clock::duration waited, bool is_terminating) {
  const std::string awaited = missing.empty()
                                  ? "its GPU, whose work has not ended"
                                  : names_of(topology_, missing) + ", which did not arrive";
  std::string text = call_name() + ": " + name_of(topology_, topology_.rank) + " waited " +
                     in_seconds(waited) + " for " + awaited + observations(missing) + "; ";
  if (waited < deadline_ && is_terminating) {
    fail(ErrorCode::timeout, text +
                                 "this process was told to end by SIGTERM, so it stops waiting (" +
                                 in_seconds(grace_) + ", TUTTI_GRACE); nothing was saved");
  }
  if (waited < deadline_) text += "another rank can wait no longer; ";
  fail(ErrorCode::timeout, text + "see what they are doing, or raise TUTTI_TIMEOUT");
}

}  // namespace tutti::collectives
