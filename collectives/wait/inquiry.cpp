// SPDX-License-Identifier: Apache-2.0
#include "collectives/wait/inquiry.hpp"

#include <algorithm>
#include <utility>

namespace tutti::collectives {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kForAnswers = seconds(1);  // the time to answer, at most the deadline
constexpr auto kAskEvery = milliseconds(500);
constexpr int kLeastAsked = 2;  // number of questions after which silence counts
/// After this time without a question, this rank is no longer asked: the others have got what they
/// waited for.
constexpr auto kAskedFor = seconds(1);
/// A missing rank that waits itself asks others in turn, and fails if they do not answer. It gets
/// this multiple of the time to answer.
constexpr int kForTheirFailure = 5;
constexpr std::size_t kMostAsked = 16;  // number of ranks of other nodes that are asked at a time

/// Raises an atomic that only grows to at least `least`.
void raise_to(std::atomic<std::uint64_t>& value, std::uint64_t least) {
  std::uint64_t seen = value.load(std::memory_order_relaxed);
  while (seen < least && !value.compare_exchange_weak(seen, least, std::memory_order_relaxed)) {
  }
}

}  // namespace

void Inquiry::begin() {
  asked_times_ = memory_.control().asked.load(std::memory_order_relaxed);
  is_up_since_.reset();
  asked_at_.reset();
  is_asked_in_node_ = false;
  askers_.clear();
  questions_.clear();
}

bool Inquiry::is_asked(Clock::duration waited) {
  if (!is_of_a_call()) return false;
  ControlBlock& own = memory_.control();
  const std::uint64_t times = own.asked.load(std::memory_order_acquire);
  if (times != asked_times_) {
    asked_times_ = times;
    if (own.asked_in.load(std::memory_order_relaxed) > failure_.call()->sequence) {
      is_asked_in_node_ = true;
      be_asked(waited);
    }
  }
  if (asked_at_ && waited - *asked_at_ >= kAskedFor) {
    asked_at_.reset();
    askers_.clear();
  }
  return asked_at_.has_value();
}

void Inquiry::take(const Notice& notice, Clock::duration waited) {
  if (!is_of_a_call()) return;
  if (notice.kind == Notice::Kind::overdue) {
    if (notice.sequence < failure_.call()->sequence) return;
    askers_.push_back(notice.rank);
    be_asked(waited);
    return;
  }
  const auto question = questions_.find(notice.rank);
  if (question == questions_.end()) return;
  if (notice.kind == Notice::Kind::elsewhere) {
    if (notice.sequence == failure_.call()->sequence) question->second.elsewhere = notice.text;
  } else {
    question->second.close();
    question->second.elsewhere.clear();
  }
}

void Inquiry::be_asked(Clock::duration waited) {
  if (!asked_at_) asked_since_ = waited;
  asked_at_ = waited;
}

/// True if this rank has been asked for some time. Questions that were not read for a while arrive
/// all at once, and may come from a rank that has since gone on, so one moment does not count.
bool Inquiry::is_asked_again() const {
  return asked_at_ && *asked_at_ - asked_since_ >= kAskEvery / 2;
}

Inquiry::Clock::duration Inquiry::time_for_answers() const {
  return std::min<Clock::duration>(kForAnswers, limits_.deadline);
}

Inquiry::Clock::duration Inquiry::time_between_questions() const {
  return std::min<Clock::duration>(kAskEvery, time_for_answers() / kLeastAsked);
}

void Inquiry::go_on(const std::vector<int>& missing, Clock::duration waited, bool is_terminating) {
  const bool own_time_is_up = waited >= limits_.deadline || is_terminating;
  if (own_time_is_up && !is_up_since_) is_up_since_ = waited;
  if (missing.empty()) {
    if (own_time_is_up) expire(missing, waited, is_terminating);
    return;
  }
  const bool asks = is_of_a_call();
  if (asks) answer();
  const std::vector<int> absent = absent_among(missing);
  const std::vector<int> silent = silent_among(missing, waited);
  if (own_time_is_up && !absent.empty()) expire(absent, waited, is_terminating);
  if (!silent.empty() && (own_time_is_up || is_asked_again())) {
    expire(silent, waited, is_terminating);
  }
  const auto limit = asks ? kForTheirFailure * time_for_answers() : time_for_answers();
  if (own_time_is_up && waited - *is_up_since_ >= limit) {
    expire(missing, waited, is_terminating);
  }
  if (asks) ask(missing, waited);
}

/// Returns the missing ranks of this node that are in no call.
std::vector<int> Inquiry::absent_among(const std::vector<int>& missing) const {
  std::vector<int> absent;
  for (const int rank : missing) {
    const int local = topology_.local_rank_of(rank);
    if (local >= 0 && !memory_.peers[local].control().calls.is_in_a_call()) absent.push_back(rank);
  }
  return absent;
}

/// Returns the missing ranks that have been asked often enough and have not answered.
std::vector<int> Inquiry::silent_among(const std::vector<int>& missing, Clock::duration waited) {
  std::vector<int> silent;
  for (const int rank : missing) {
    const auto found = questions_.find(rank);
    if (found == questions_.end()) continue;
    Question& question = found->second;
    look_for_answer(rank, question);
    const bool is_silent = question.times >= kLeastAsked &&
                           waited - *question.open_since >= time_for_answers() &&
                           waited - *question.asked_at >= time_between_questions() / 2;
    if (is_silent) silent.push_back(rank);
  }
  return silent;
}

/// Looks in memory for the answer of a rank of this node. Answers from other nodes arrive as
/// notices.
void Inquiry::look_for_answer(int rank, Question& question) const {
  const int local = topology_.local_rank_of(rank);
  if (local < 0) return;
  const auto answers = memory_.peers[local].control().answers.load(std::memory_order_relaxed);
  if (std::exchange(question.answers, answers) != answers) question.close();
}

/// Answers all ranks that have asked this one: it waits itself.
void Inquiry::answer() {
  if (std::exchange(is_asked_in_node_, false)) {
    memory_.control().answers.fetch_add(1, std::memory_order_relaxed);
    sleepers_.wake();
  }
  for (const int asker : askers_) {
    Notice notice;
    notice.kind = Notice::Kind::waits_too;
    notice.rank = topology_.rank;
    notice.sequence = failure_.call()->sequence;
    transport_->notify(asker, notice);
  }
  askers_.clear();
}

/// Asks the missing ranks, repeatedly, since an answer holds only for the moment. If many ranks of
/// other nodes are missing, it asks only some of them, beginning with those after this rank, so
/// that different ranks ask different ones.
void Inquiry::ask(const std::vector<int>& missing, Clock::duration waited) {
  std::vector<int> in_turn = missing;
  std::stable_partition(in_turn.begin(), in_turn.end(),
                        [&](int rank) { return rank > topology_.rank; });
  std::size_t asked_elsewhere = 0;
  for (const int rank : in_turn) {
    const bool is_elsewhere = topology_.local_rank_of(rank) < 0;
    if (is_elsewhere && (transport_ == nullptr || ++asked_elsewhere > kMostAsked)) continue;
    ask(rank, waited);
  }
}

/// Asks one rank, unless it was asked a short time ago.
void Inquiry::ask(int rank, Clock::duration waited) {
  Question& question = questions_[rank];
  if (question.asked_at && waited - *question.asked_at < time_between_questions()) return;
  if (!question.asked_at) look_for_answer(rank, question);  // skips answers to an earlier wait
  question.asked_at = waited;
  if (!question.open_since) question.open_since = waited;
  ++question.times;
  if (const int local = topology_.local_rank_of(rank); local >= 0) {
    ControlBlock& peer = memory_.peers[local].control();
    raise_to(peer.asked_in, failure_.call()->sequence + 1);
    peer.asked.fetch_add(1, std::memory_order_release);
    sleepers_.wake();
    return;
  }
  Notice notice;
  notice.kind = Notice::Kind::overdue;
  notice.rank = topology_.rank;
  notice.sequence = failure_.call()->sequence;
  transport_->notify(rank, notice);
}

void Inquiry::expire(const std::vector<int>& missing, Clock::duration waited, bool is_terminating) {
  const std::string awaited = missing.empty()
                                  ? "its GPU, whose work has not ended"
                                  : names_of(topology_, missing) + ", which did not arrive";
  const auto told = [&](int rank) {
    const auto found = questions_.find(rank);
    return found == questions_.end() ? std::string() : found->second.elsewhere;
  };
  std::string text = failure_.call_name() + ": " + name_of(topology_, topology_.rank) + " waited " +
                     in_seconds(waited) + " for " + awaited + failure_.observations(missing, told) +
                     "; ";
  const auto asked_from = is_up_since_.value_or(waited);
  if (asked_from < limits_.deadline && is_terminating) {
    failure_.fail(ErrorCode::timeout,
                  text + "this process was told to end by SIGTERM, so it stops waiting (" +
                      in_seconds(limits_.grace) + ", TUTTI_GRACE); nothing was saved");
  }
  if (asked_from < limits_.deadline) {
    text += "another rank can wait no longer (TUTTI_TIMEOUT, or TUTTI_GRACE after SIGTERM); ";
  }
  failure_.fail(ErrorCode::timeout, text + "see what they are doing, or raise TUTTI_TIMEOUT");
}

}  // namespace tutti::collectives
