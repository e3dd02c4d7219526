// SPDX-License-Identifier: Apache-2.0
// A wait that comes to nothing: whom to blame, and in what words.
#include <algorithm>
#include <cstdio>

#include "collectives/wait.hpp"

namespace tutti::collectives {

namespace {

constexpr auto kForOtherNodes = std::chrono::milliseconds(500);
constexpr auto kForThoseWhoWait = std::chrono::seconds(1);

std::string in_seconds(std::chrono::steady_clock::duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(time).count());
  return text;
}

}  // namespace

void Waiter::check_leavers(FunctionRef<std::vector<int>()> missing) {
  if (call_ == nullptr) return;
  for (int i = 0; i < memory_.size(); ++i) {
    const auto left = memory_.peers[i].control().left.load(std::memory_order_acquire);
    if (left != 0) left_elsewhere_[topology_.local_ranks()[i]] = left;
  }
  if (left_elsewhere_.empty()) return;
  std::vector<int> gone;
  bool by_exception = false;
  for (const int rank : missing()) {
    const auto found = left_elsewhere_.find(rank);
    if (found == left_elsewhere_.end()) continue;
    const std::uint64_t sequence = found->second & ~kLeftByException;
    if (sequence > call_->sequence) continue;
    gone.push_back(rank);
    by_exception = by_exception || sequence != found->second;
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
  return call_->describe() + " (call " + std::to_string(call_->sequence) + ")";
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

/// Time beyond the deadline for those who are better placed to say who is missing. A rank that has
/// made the call waits itself, for the rank to blame; and a rank of another node is better looked
/// at from there.
Waiter::Clock::duration Waiter::patience(const std::vector<int>& missing) const {
  if (missing.empty()) return Clock::duration::zero();
  const auto is_elsewhere = [&](int rank) { return topology_.local_rank_of(rank) < 0; };
  if (std::all_of(missing.begin(), missing.end(), is_elsewhere)) return kForOtherNodes;
  const auto has_come = [&](int rank) {
    const int local = topology_.local_rank_of(rank);
    return local < 0 ||
           (call_ != nullptr && memory_.peers[local].control().calls.is_in(call_->sequence));
  };
  const bool all_came = std::all_of(missing.begin(), missing.end(), has_come);
  return all_came ? kForThoseWhoWait : Clock::duration::zero();
}

void Waiter::expire(const std::vector<int>& missing, Clock::duration waited) {
  const std::string awaited = missing.empty()
                                  ? "its GPU, whose work has not ended"
                                  : names_of(topology_, missing) + ", which did not arrive";
  const std::string text = call_name() + ": " + name_of(topology_, topology_.rank) + " waited " +
                           in_seconds(waited) + " for " + awaited + observations(missing) + "; ";
  if (waited < deadline_) {
    fail(ErrorCode::timeout, text +
                                 "this process was told to end by SIGTERM, so it stops waiting (" +
                                 in_seconds(grace_) + ", TUTTI_GRACE); nothing was saved");
  }
  fail(ErrorCode::timeout, text + "see what they are doing, or raise TUTTI_TIMEOUT");
}

}  // namespace tutti::collectives
