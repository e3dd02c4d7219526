// SPDX-License-Identifier: Apache-2.0
#include "collectives/wait.hpp"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tutti::collectives {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kSpin = microseconds(20);  // longer than a hand-over between two cores
constexpr int kManyPolls = 100;           // some microseconds: longer than most waits
constexpr int kFewPolls = 16;             // a core is better given to the peer
constexpr auto kYield = milliseconds(5);  // longer than a time slice of a peer
// Large messages on a slow network leave the core to the kernel, which moves them.
constexpr auto kYieldForMessages = microseconds(200);
constexpr auto kNap = microseconds(20);
constexpr auto kProgressAfter = microseconds(10);
constexpr auto kSleep = milliseconds(1);  // bounds what a lost wake-up costs
constexpr auto kLongestPoll = seconds(1);

void nap() {
  const timespec time{0, std::chrono::nanoseconds(kNap).count()};
  nanosleep(&time, nullptr);
}

std::string in_seconds(std::chrono::steady_clock::duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(time).count());
  return text;
}

template <std::size_t Size>
void copy_text(char (&destination)[Size], const std::string& text) {
  const std::size_t length = std::min(text.size(), Size - 1);
  std::memcpy(destination, text.data(), length);
  destination[length] = '\0';
}

}  // namespace

Waiter::Waiter(const NodeMemory& memory, const Topology& topology, const Settings& settings,
               Transport* transport)
    : memory_(memory),
      topology_(topology),
      transport_(transport),
      deadline_(std::chrono::duration_cast<Clock::duration>(settings.timeout)),
      grace_(std::chrono::duration_cast<Clock::duration>(settings.grace)),
      spin_(topology.oversubscribed ? Clock::duration::zero() : Clock::duration(kSpin)),
      fast_polls_(topology.oversubscribed ? kFewPolls : kManyPolls),
      warnings_(settings.warnings) {}

void Waiter::slow(FunctionRef<bool()> ready, FunctionRef<std::vector<int>()> missing) {
  const auto begin = Clock::now();
  auto last = begin;
  Clock::duration polled{0};
  Clock::duration polled_in_grace{0};
  bool warned = !warnings_;
  while (!ready()) {
    const auto now = Clock::now();
    const auto one_poll = std::min<Clock::duration>(now - last, kLongestPoll);
    polled += one_poll;
    if (terminating()) polled_in_grace += one_poll;
    last = now;
    if (poll_ != nullptr) (*poll_)();
    if (polled >= kProgressAfter) {
      if (transport_ != nullptr) {
        transport_->progress();
        read_notices();
      }
      check_failure();
      check_leavers(missing);
    }
    if (!warned && polled >= deadline_ / 10) {
      warn(missing, polled);
      warned = true;
    }
    if (polled >= deadline_ || polled_in_grace >= grace_) {
      if (ready()) return;
      expire(missing(), polled);
    }
    pause(polled, ready);
  }
}

void Waiter::pause(Clock::duration waited, FunctionRef<bool()> ready) {
  if (waited < spin_) {
    relax();
  } else if (poll_ != nullptr && waited >= spin_ + kYieldForMessages) {
    nap();
  } else if (waited < spin_ + kYield) {
    sched_yield();
  } else {
    sleep(ready);
  }
}

/// The flag is set before the last look, and wake() looks at it after the signal, but neither has
/// the fence that would make this watertight: a fence in every signal would cost more than a sleep
/// of one millisecond that is lost once in a great while.
void Waiter::sleep(FunctionRef<bool()> ready) {
  ControlBlock& node = memory_.first();
  const std::uint32_t seen = node.wakeups.load(std::memory_order_acquire);
  node.sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (!ready()) {
    const timespec limit{0, std::chrono::nanoseconds(kSleep).count()};
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&node.wakeups), FUTEX_WAIT, seen, &limit,
            nullptr, 0);
  }
  node.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void Waiter::wake_sleepers() {
  ControlBlock& node = memory_.first();
  node.wakeups.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&node.wakeups), FUTEX_WAKE, INT_MAX, nullptr,
          nullptr, 0);
}

void Waiter::read_notices() {
  while (const auto notice = transport_->poll_notice()) {
    if (notice->kind == Notice::Kind::left) {
      left_elsewhere_[notice->rank] = notice->sequence;
    } else if (!failed()) {
      raise_failure(static_cast<ErrorCode>(notice->code), notice->text);
    }
  }
}

void Waiter::check_failure() {
  ControlBlock& node = memory_.first();
  if (node.failure.load(std::memory_order_acquire) != kRaised) return;
  throw Error(static_cast<ErrorCode>(node.failure_code), node.failure_text, ErrorScope::failed,
              /*reporter=*/false);
}

void Waiter::check_leavers(FunctionRef<std::vector<int>()> missing) {
  if (call_ == nullptr) return;
  for (int i = 0; i < memory_.size(); ++i) {
    const auto left = memory_.peers[i].control().left.load(std::memory_order_acquire);
    if (left != 0) left_elsewhere_[topology_.local_ranks()[i]] = left;
  }
  if (left_elsewhere_.empty()) return;
  std::vector<int> gone;
  for (const int rank : missing()) {
    const auto found = left_elsewhere_.find(rank);
    if (found != left_elsewhere_.end() && found->second <= call_->sequence) gone.push_back(rank);
  }
  if (gone.empty()) return;
  fail(ErrorCode::communication,
       call_name() + ": " + names_of(topology_, gone) + " left before this call, which " +
           name_of(topology_, topology_.rank) +
           " waits in; every rank must make the same calls before its store is destroyed");
}

bool Waiter::raise_failure(ErrorCode code, const std::string& text) {
  ControlBlock& node = memory_.first();
  std::uint32_t healthy = kHealthy;
  if (!node.failure.compare_exchange_strong(healthy, kRaising)) return false;
  node.failure_code = static_cast<std::uint32_t>(code);
  copy_text(node.failure_text, text);
  node.failure.store(kRaised, std::memory_order_release);
  wake_sleepers();
  Notice notice;
  notice.kind = Notice::Kind::failed;
  notice.rank = topology_.rank;
  notice.code = static_cast<std::uint32_t>(code);
  copy_text(notice.text, text);
  notify_other_nodes(notice);
  return true;
}

void Waiter::fail(ErrorCode code, const std::string& text) {
  if (!raise_failure(code, text)) {
    const auto limit = Clock::now() + kLongestPoll;  // who raises may be killed meanwhile
    while (!raised() && Clock::now() < limit) sched_yield();
    check_failure();
  }
  throw Error(code, text, ErrorScope::failed);
}

void Waiter::leave(std::uint64_t last_sequence) {
  memory_.control().left.store(last_sequence + 1, std::memory_order_release);
  wake();
  Notice notice;
  notice.kind = Notice::Kind::left;
  notice.rank = topology_.rank;
  notice.sequence = last_sequence + 1;
  notify_other_nodes(notice);
}

/// The first rank of each other node listens; it passes a failure on through its node's memory.
void Waiter::notify_other_nodes(const Notice& notice) noexcept {
  if (transport_ == nullptr) return;
  for (int node = 0; node < topology_.num_nodes(); ++node) {
    if (node != topology_.node) transport_->notify(topology_.nodes[node].front(), notice);
  }
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
  if (speaker == local.end() || *speaker != topology_.rank) return;
  const std::string text = "tutti: warning: " + name_of(topology_, topology_.rank) +
                           " has waited " + in_seconds(waited) + " for " +
                           names_of(topology_, missing) + " in " + call_name() + "\n";
  std::fputs(text.c_str(), stderr);
}

void Waiter::expire(const std::vector<int>& missing, Clock::duration waited) {
  const std::string text = call_name() + ": " + name_of(topology_, topology_.rank) + " waited " +
                           in_seconds(waited) + " for " + names_of(topology_, missing) +
                           ", which did not arrive; ";
  if (waited < deadline_) {
    fail(ErrorCode::timeout, text +
                                 "this process was told to end by SIGTERM, so it stops waiting (" +
                                 in_seconds(grace_) + ", TUTTI_GRACE); nothing was saved");
  }
  fail(ErrorCode::timeout, text + "see what they are doing, or raise TUTTI_TIMEOUT");
}

}  // namespace tutti::collectives
