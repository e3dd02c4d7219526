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
// ControlBlock::asked in its own. One that waits in the same call, or in one before it, says so;
// its time is up then as well, and it asks in its turn. Who is asked and does not answer for a
// second is named. Nobody asks before a deadline; then each is asked twice a second, and once
// it comes, nothing of this is left: what one wait has learnt ends with it.
#include <algorithm>
#include <utility>

#include "collectives/wait/wait.hpp"

namespace tutti::collectives {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kForAnswers = seconds(1);  // but no longer than a deadline
constexpr auto kAskEvery = milliseconds(500);
constexpr int kLeastAsked = 2;  // times, before silence means something
/// Who has not been asked for so long waits on: the others have what they waited for.
constexpr auto kAskedFor = seconds(1);
/// Those who wait themselves ask as soon as they are asked, and fail once they have no answer.
constexpr int kForTheirFailure = 5;     // times as long
constexpr std::size_t kMostAsked = 16;  // of other nodes, at a time

/// Sets what only grows.
void raise_to(std::atomic<std::uint64_t>& value, std::uint64_t least) {
  std::uint64_t seen = value.load(std::memory_order_relaxed);
  while (seen < least && !value.compare_exchange_weak(seen, least, std::memory_order_relaxed)) {
  }
}

}  // namespace

void Waiter::check_leavers(FunctionRef<std::vector<int>()> missing) {
  if (call_ == nullptr) return;
  const bool has_local_leavers = memory_.first().leavers.load(std::memory_order_acquire) != 0;
  if (!has_local_leavers && left_elsewhere_.empty() && nodes_left_.empty()) return;
  std::vector<int> gone;
  bool by_exception = false;
  const std::uint64_t needed = call_->sequence - (sender_may_leave_ ? 1 : 0);
  for (const int rank : missing()) {
    const std::uint64_t left = left_of(rank);
    const std::uint64_t sequence = left & ~kLeftByException;
    if (left == 0 || sequence > needed) continue;
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
  const auto is_missing = [&](int rank) {
    return std::find(missing.begin(), missing.end(), rank) != missing.end();
  };
  const auto& local = topology_.local_ranks();  // one rank of the node speaks for it
  const auto speaker = std::find_if_not(local.begin(), local.end(), is_missing);
  const bool speaks = missing.empty() || (speaker != local.end() && *speaker == topology_.rank);
  if (!speaks) return;
  log_.warn("has waited " + in_seconds(waited) + " for " +
            (missing.empty() ? std::string("its GPU") : names_of(topology_, missing)) + " in " +
            call_name());
}

/// Whether a rank that waits for this one can wait no longer.
bool Waiter::is_asked(Clock::duration waited) {
  if (call_ == nullptr || call_->is_message) return false;
  ControlBlock& own = memory_.control();
  const std::uint64_t times = own.asked.load(std::memory_order_acquire);
  if (times != overdue_.asked_times) {
    overdue_.asked_times = times;
    if (own.asked_in.load(std::memory_order_relaxed) > call_->sequence) {
      overdue_.is_asked_in_node = true;
      be_asked(waited);
    }
  }
  if (overdue_.asked_at && waited - *overdue_.asked_at >= kAskedFor) {
    overdue_.asked_at.reset();
    overdue_.askers.clear();
  }
  return overdue_.asked_at.has_value();
}

void Waiter::be_asked(Clock::duration waited) {
  if (!overdue_.asked_at) overdue_.asked_since = waited;
  overdue_.asked_at = waited;
}

/// Questions that have waited to be read come all at once: they may be of one who has since gone
/// on.
bool Waiter::is_asked_again() const {
  return overdue_.asked_at && *overdue_.asked_at - overdue_.asked_since >= kAskEvery / 2;
}

/// Throws once it is known who is to blame, or can be known no more. A rank that waits for its GPU
/// gives no answer.
void Waiter::end_overdue(const std::vector<int>& missing, Clock::duration waited,
                         bool is_terminating) {
  const bool own_time_is_up = waited >= deadline_ || is_terminating;
  if (own_time_is_up && !overdue_.is_up_since) overdue_.is_up_since = waited;
  if (missing.empty()) {
    if (own_time_is_up) expire(missing, waited, is_terminating);
    return;
  }
  const auto for_answers = std::min<Clock::duration>(kForAnswers, deadline_);
  const auto ask_every = std::min<Clock::duration>(kAskEvery, for_answers / kLeastAsked);
  const bool asks = call_ != nullptr && !call_->is_message;
  if (asks) answer();
  std::vector<int> absent;
  std::vector<int> silent;
  for (const int rank : missing) {
    const int local = topology_.local_rank_of(rank);
    if (local >= 0 && !memory_.peers[local].control().calls.is_in_a_call()) absent.push_back(rank);
    const auto found = overdue_.questions.find(rank);
    if (found == overdue_.questions.end()) continue;
    Question& question = found->second;
    look_for_answer(rank, question);
    const bool is_silent = question.times >= kLeastAsked &&
                           waited - *question.open_since >= for_answers &&
                           waited - *question.asked_at >= ask_every / 2;
    if (is_silent) silent.push_back(rank);
  }
  if (own_time_is_up && !absent.empty()) expire(absent, waited, is_terminating);
  if (!silent.empty() && (own_time_is_up || is_asked_again())) {
    expire(silent, waited, is_terminating);
  }
  const auto limit = asks ? kForTheirFailure * for_answers : for_answers;
  if (own_time_is_up && waited - *overdue_.is_up_since >= limit) {
    expire(missing, waited, is_terminating);
  }
  if (asks) ask(missing, waited, ask_every);
}

/// Ranks of this node answer in memory. The answers of others come as notices.
void Waiter::look_for_answer(int rank, Question& question) const {
  const int local = topology_.local_rank_of(rank);
  if (local < 0) return;
  const auto answers = memory_.peers[local].control().answers.load(std::memory_order_relaxed);
  if (std::exchange(question.answers, answers) != answers) question.close();
}

/// Tells those who have asked this rank that it waits itself.
void Waiter::answer() {
  if (std::exchange(overdue_.is_asked_in_node, false)) {
    memory_.control().answers.fetch_add(1, std::memory_order_relaxed);
    wake();
  }
  for (const int asker : overdue_.askers) {
    Notice notice;
    notice.kind = Notice::Kind::waits_too;
    notice.rank = topology_.rank;
    notice.sequence = call_->sequence;
    transport_->notify(asker, notice);
  }
  overdue_.askers.clear();
}

/// Asks again and again, since an answer tells of one moment. Where many ranks of other nodes are
/// missing, it asks some: those behind this rank, so that others ask others.
void Waiter::ask(const std::vector<int>& missing, Clock::duration waited,
                 Clock::duration ask_every) {
  std::vector<int> in_turn = missing;
  std::stable_partition(in_turn.begin(), in_turn.end(),
                        [&](int rank) { return rank > topology_.rank; });
  std::size_t asked_elsewhere = 0;
  for (const int rank : in_turn) {
    const int local = topology_.local_rank_of(rank);
    if (local < 0 && (transport_ == nullptr || ++asked_elsewhere > kMostAsked)) continue;
    Question& question = overdue_.questions[rank];
    if (question.asked_at && waited - *question.asked_at < ask_every) continue;
    if (!question.asked_at) look_for_answer(rank, question);  // an earlier wait's
    question.asked_at = waited;
    if (!question.open_since) question.open_since = waited;
    ++question.times;
    if (local >= 0) {
      ControlBlock& peer = memory_.peers[local].control();
      raise_to(peer.asked_in, call_->sequence + 1);
      peer.asked.fetch_add(1, std::memory_order_release);
      wake();
      continue;
    }
    Notice notice;
    notice.kind = Notice::Kind::overdue;
    notice.rank = topology_.rank;
    notice.sequence = call_->sequence;
    transport_->notify(rank, notice);
  }
}

void Waiter::expire(const std::vector<int>& missing, Clock::duration waited, bool is_terminating) {
  const std::string awaited = missing.empty()
                                  ? "its GPU, whose work has not ended"
                                  : names_of(topology_, missing) + ", which did not arrive";
  std::string text = call_name() + ": " + name_of(topology_, topology_.rank) + " waited " +
                     in_seconds(waited) + " for " + awaited + observations(missing) + "; ";
  const auto asked_from = overdue_.is_up_since.value_or(waited);
  if (asked_from < deadline_ && is_terminating) {
    fail(ErrorCode::timeout, text +
                                 "this process was told to end by SIGTERM, so it stops waiting (" +
                                 in_seconds(grace_) + ", TUTTI_GRACE); nothing was saved");
  }
  if (asked_from < deadline_) {
    text += "another rank can wait no longer (TUTTI_TIMEOUT, or TUTTI_GRACE after SIGTERM); ";
  }
  fail(ErrorCode::timeout, text + "see what they are doing, or raise TUTTI_TIMEOUT");
}

}  // namespace tutti::collectives
