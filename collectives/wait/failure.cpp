// SPDX-License-Identifier: Apache-2.0
#include "collectives/wait/failure.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

#include "collectives/text/numbers.hpp"

namespace tutti::collectives {

namespace {

// Limit for another thread or rank to raise its failure.
constexpr auto kLongestRaise = std::chrono::seconds(1);
constexpr auto kLookForText = std::chrono::microseconds(50);
// The ranks and characters after which a message has no room for what other missing ranks do.
constexpr int kMostObserved = 3;
constexpr std::size_t kObserved = 500;

/// True if each node sends its notices to all other nodes. The limit is the number of nodes up to
/// which they agree with all others in one round. Beyond it, the end of a job must not cost each
/// node a message to every other.
bool tells_all_nodes(int nodes) {
  constexpr int kFewNodes = 8;
  return nodes <= kFewNodes;
}

template <std::size_t Size>
void copy_text(char (&destination)[Size], const std::string& text) {
  const std::size_t length = std::min(text.size(), Size - 1);
  std::memcpy(destination, text.data(), length);
  destination[length] = '\0';
}

}  // namespace

std::string in_seconds(std::chrono::steady_clock::duration time) {
  return significant(std::chrono::duration<double>(time).count(), 3) + " s";
}

bool raise_in_node(const NodeMemory& memory, ErrorCode code, const std::string& text,
                   bool reporter) {
  std::atomic<std::uint32_t>& failure = memory.first().failure;
  ControlBlock& own = memory.control();
  if (failure.load() != kHealthy || own.raises.exchange(1) != 0) return false;
  own.failure_code = static_cast<std::uint32_t>(code);
  own.reports_its_failure = reporter ? 1 : 0;
  copy_text(own.failure_text, text);
  std::uint32_t healthy = kHealthy;
  const auto raised = static_cast<std::uint32_t>(memory.local_rank) + 1;
  if (!failure.compare_exchange_strong(healthy, raised)) return false;
  Sleepers::wake_all(memory);
  return true;
}

bool reports_failure(const NodeMemory& memory) {
  const std::uint32_t raised = memory.first().failure.load(std::memory_order_acquire);
  return raised == static_cast<std::uint32_t>(memory.local_rank) + 1 &&
         memory.control().reports_its_failure != 0;
}

/// The thread that raised the failure may be a helper whose exception the program never sees.
void Failure::throw_it() const {
  const std::uint32_t raised = memory_.first().failure.load(std::memory_order_acquire);
  const ControlBlock& by = memory_.peers[raised - 1].control();
  throw Error(static_cast<ErrorCode>(by.failure_code), by.failure_text, ErrorScope::failed,
              reports_failure(memory_));
}

bool Failure::raise_for(ErrorCode code, const std::string& text, int reporter) {
  const bool is_own = reporter == kThisRank || reporter == topology_.rank;
  if (reporter >= 0 && !is_own && topology_.local_rank_of(reporter) >= 0) wait_until_failed();
  raise(code, text, is_own);
  return reports_failure(memory_);
}

/// Waits for another thread, here or on another rank, that is about to raise a failure.
void Failure::wait_until_failed() const {
  const auto limit = std::chrono::steady_clock::now() + kLongestRaise;
  while (!failed() && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(kLookForText);
  }
}

bool Failure::raise(ErrorCode code, const std::string& text, bool reporter) {
  if (!raise_in_node(memory_, code, text, reporter)) return false;
  Notice notice;
  notice.kind = Notice::Kind::failed;
  notice.rank = topology_.rank;
  notice.code = static_cast<std::uint32_t>(code);
  notice.say(text);
  tell_other_nodes(notice);
  return true;
}

void Failure::fail(ErrorCode code, const std::string& text, bool reporter) {
  if (!raise(code, text, reporter)) {
    wait_until_failed();
    check();
  }
  throw Error(code, text, ErrorScope::failed, reporter);
}

void Failure::fail(const LocalError& error) {
  const std::string text = name_of(topology_, topology_.rank) + ": " + error.text;
  if (!error.is_foreign || std::current_exception() == nullptr) fail(error.code, text);
  const bool is_first = raise(error.code, text, /*reporter=*/true);
  std::throw_with_nested(
      Error(error.code, text, ErrorScope::failed, is_first || reports_failure(memory_)));
}

/// Among few nodes every rank sends a notice. Among many, only the last rank to leave a node sends
/// one, for the whole node: if ranks of a node wait for others that have left, they learn it from
/// their node's memory and raise a failure.
void Failure::leave(std::uint64_t last_sequence, bool by_exception) {
  const std::uint64_t left = (last_sequence + 1) | (by_exception ? kLeftByException : 0);
  memory_.control().left.store(left, std::memory_order_release);
  sleepers_.wake();
  const bool is_last = memory_.first().leavers.fetch_add(1, std::memory_order_acq_rel) + 1 ==
                       static_cast<std::uint32_t>(memory_.size());
  const bool tells_all = tells_all_nodes(topology_.num_nodes());
  if (tells_all || is_last) {
    Notice notice;
    notice.kind = tells_all ? Notice::Kind::left : Notice::Kind::node_left;
    notice.rank = topology_.rank;
    notice.sequence = tells_all ? left : left_of_node();
    tell_other_nodes(notice);
  }
  for (const Peer& peer : memory_.peers) {
    peer.control().departed.fetch_add(1, std::memory_order_release);
  }
}

/// Combines ControlBlock::left of all ranks of this node: the earliest value, and kLeftByException
/// if any rank has it.
std::uint64_t Failure::left_of_node() const {
  std::uint64_t earliest = ~std::uint64_t{0};
  std::uint64_t flag = 0;
  for (const Peer& peer : memory_.peers) {
    const std::uint64_t left = peer.control().left.load(std::memory_order_acquire);
    earliest = std::min(earliest, left & ~kLeftByException);
    flag |= left & kLeftByException;
  }
  return earliest | flag;
}

/// Sends the notice to the first rank of other nodes, which passes a failure on through its node's
/// memory. Among few nodes it goes to all of them. Among many it goes to those at distances of a
/// power of two in both directions, and these pass failures on in turn: a failure reaches all N
/// nodes within log2 N consecutive messages, on many routes. A notice that a node has left is not
/// passed on. Not all nodes need it: if some nodes wait in a call that others have left, a node
/// whose next message is missing waits for one of those that were told, and raises a failure.
void Failure::tell_other_nodes(const Notice& notice) noexcept {
  if (transport_ == nullptr) return;
  const int nodes = topology_.num_nodes();
  const bool tells_all = tells_all_nodes(nodes);
  const auto tell = [&](int distance) {
    transport_->notify(topology_.nodes[(topology_.node + distance) % nodes].front(), notice);
  };
  for (int distance = 1; distance < nodes; distance = tells_all ? distance + 1 : 2 * distance) {
    tell(distance);
    if (!tells_all && 2 * distance != nodes) tell(nodes - distance);
  }
}

void Failure::take(const Notice& notice) {
  if (notice.kind == Notice::Kind::left) {
    left_elsewhere_[notice.rank] = notice.sequence;
  } else if (notice.kind == Notice::Kind::node_left) {
    nodes_left_[topology_.node_of(notice.rank)] = notice.sequence;
  } else if (!failed()) {
    raise(static_cast<ErrorCode>(notice.code), notice.text, /*reporter=*/false);
  }
}

void Failure::check_leavers(FunctionRef<std::vector<int>()> missing) {
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
  if (by_exception) {  // the rank that left prints the exception
    fail(ErrorCode::communication,
         call_name() + ": " + names_of(topology_, gone) + " ended by an exception of its own",
         /*reporter=*/false);
  }
  fail(ErrorCode::communication,
       call_name() + ": " + names_of(topology_, gone) + " left before this call, which " +
           name_of(topology_, topology_.rank) +
           " waits in; every rank must make the same calls before its store is destroyed or the "
           "program ends");
}

/// Returns ControlBlock::left of a rank of any node, or 0 if the rank is not known to have left.
std::uint64_t Failure::left_of(int rank) const {
  const int local = topology_.local_rank_of(rank);
  if (local >= 0) return memory_.peers[local].control().left.load(std::memory_order_acquire);
  if (const auto found = left_elsewhere_.find(rank); found != left_elsewhere_.end()) {
    return found->second;
  }
  const auto found = nodes_left_.find(topology_.node_of(rank));
  return found == nodes_left_.end() ? 0 : found->second;
}

/// Detects processes that were killed, which send no notice.
void Failure::check_processes(FunctionRef<std::vector<int>()> missing) {
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

std::string Failure::observations(const std::vector<int>& missing,
                                  FunctionRef<std::string(int rank)> told) const {
  std::string text;
  int observed = 0;
  for (const int rank : missing) {
    const int local = topology_.local_rank_of(rank);
    const bool is_here = local >= 0 && observer_ != nullptr;
    const std::string known = is_here ? observer_->describe(local) : told(rank);
    if (known.empty()) continue;
    text += "; rank " + std::to_string(rank) + " " + known;
    if (++observed == kMostObserved || text.size() > kObserved) break;
  }
  return text;
}

std::string Failure::call_name() const {
  if (call_ == nullptr) return "collective call";
  return call_->describe() + " (call " + std::to_string(call_->sequence) + of_group(topology_) +
         ")";
}

}  // namespace tutti::collectives
