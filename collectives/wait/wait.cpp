// SPDX-License-Identifier: Apache-2.0
#include "collectives/wait/wait.hpp"

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
// A look at messages goes through MPI, and takes a microsecond or two: a hundred would hold a core
// for 300, which hosts that share it wait for.
constexpr int kMessagePolls = 8;
constexpr auto kYield = milliseconds(5);  // longer than a time slice of a peer
// Where many ranks share a core, one that yields is given turns only to look again; one that sleeps
// leaves them to those who have something to do. This is about twice round where all are in step.
constexpr auto kYieldCrowded = microseconds(12);
constexpr int kCrowd = 3;  // ranks on a core
// Large messages on a slow network leave the core to the kernel, which moves them.
constexpr auto kYieldForMessages = microseconds(200);
constexpr auto kNap = microseconds(20);
constexpr auto kFirstNap = microseconds(50);  // beside a thread that computes
constexpr auto kProgressAfter = microseconds(10);
constexpr auto kSleep = milliseconds(1);  // bounds what a lost wake-up costs
constexpr auto kLongestPoll = seconds(1);
constexpr auto kWarnAtLast = seconds(30);
constexpr auto kLookAfter = seconds(2);  // a launcher that ends the job itself is faster
constexpr auto kLookEvery = milliseconds(500);

void nap() {
  const timespec time{0, std::chrono::nanoseconds(kNap).count()};
  nanosleep(&time, nullptr);
}

/// Whether a node tells all others itself what happens in it: those that agree with all others in
/// one round do. A message to each of many is what a job's end must not cost.
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

void wake_node(const NodeMemory& memory) {
  ControlBlock& node = memory.first();
  if (memory.pace != nullptr) return memory.pace->signalled();
  node.wakeups.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&node.wakeups), FUTEX_WAKE, INT_MAX, nullptr,
          nullptr, 0);
}

}  // namespace

std::string in_seconds(std::chrono::steady_clock::duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(time).count());
  return text;
}

std::atomic<bool (*)() noexcept>& interrupt_check() noexcept {
  static std::atomic<bool (*)() noexcept> check{nullptr};
  return check;
}

bool interrupted() noexcept {
  const auto check = interrupt_check().load(std::memory_order_relaxed);
  return check != nullptr && check();
}

Waiter::Clock::duration Waiter::deadline_of(const Settings& settings) {
  if (settings.timeout.count() == 0) return Clock::duration::max();
  return std::chrono::duration_cast<Clock::duration>(settings.timeout);
}

/// In a simulation nothing changes while a rank looks.
int Waiter::polls_before_slow(const NodeMemory& memory, const Topology& topology) {
  if (memory.pace != nullptr) return 1;
  if (topology.num_nodes() > 1 && memory.size() == 1) return kMessagePolls;
  return topology.ranks_per_core > 1 ? kFewPolls : kManyPolls;
}

Waiter::Waiter(const NodeMemory& memory, const Topology& topology, const Settings& settings,
               Transport* transport)
    : memory_(memory),
      topology_(topology),
      transport_(transport),
      deadline_(deadline_of(settings)),
      warn_after_(std::min<Clock::duration>(deadline_ / 10, kWarnAtLast)),
      grace_(std::chrono::duration_cast<Clock::duration>(settings.grace)),
      spin_(topology.ranks_per_core > 1 ? Clock::duration::zero() : Clock::duration(kSpin)),
      yield_(topology.ranks_per_core >= kCrowd && topology.num_nodes() == 1
                 ? Clock::duration(kYieldCrowded)
                 : Clock::duration(kYield)),
      fast_polls_(polls_before_slow(memory, topology)),
      log_(topology, settings.log) {}

void Waiter::slow(FunctionRef<bool()> ready, FunctionRef<std::vector<int>()> missing,
                  Clock::duration progress_every) {
  auto last = now();
  Clock::duration polled{0};
  Clock::duration polled_in_grace{0};
  overdue_ = {.asked_times = memory_.control().asked.load(std::memory_order_relaxed)};
  bool warned = !log_.writes(LogLevel::warning);
  auto look_at = Clock::duration(kLookAfter);
  auto progress_at = Clock::duration(kProgressAfter);
  auto interrupted_at = Clock::duration(kInterruptedEvery);
  while (!ready()) {
    const auto time = now();
    const auto one_poll = std::min<Clock::duration>(time - last, kLongestPoll);
    polled += one_poll;
    if (terminating()) polled_in_grace += one_poll;
    last = time;
    if (poll_ != nullptr) (*poll_)();
    if (patience_ != nullptr && patience_->is_given_up.load()) give_up();
    if (polled >= progress_at && drives_transport()) {
      transport_->progress();
      read_notices(polled);
      progress_at = polled + progress_every;
    }
    if (polled >= kProgressAfter) {
      if (raised()) {
        if (ready()) return;  // what came before the failure counts
        check_failure();
      }
      check_leavers(missing);
    }
    if (polled >= look_at) {
      check_processes(missing);
      look_at = polled + kLookEvery;
    }
    if (polled >= interrupted_at) {
      if (interrupted()) interrupt();
      interrupted_at = polled + kInterruptedEvery;
    }
    if (!warned && polled >= warn_after_) {
      warn(missing, polled);
      warned = true;
    }
    const bool is_terminating = polled_in_grace >= grace_;
    const bool is_asked_now = is_asked(polled);
    if (polled >= deadline_ || is_terminating || is_asked_now) {
      const std::vector<int> late = missing();
      if (ready()) return;  // also if they came in between
      end_overdue(late, polled, is_terminating);
    } else if (!overdue_.questions.empty()) {
      overdue_.questions.clear();
    }
    pause(polled, ready, progress_every > Clock::duration::zero());
  }
}

void Waiter::check_peers() {
  check_failure();
  const auto time = now();
  if (time - looked_at_ < kLookEvery) return;
  looked_at_ = time;
  if (drives_transport()) {
    transport_->progress();
    read_notices();
    check_failure();
  }
  check_processes([&] {
    std::vector<int> others = topology_.local_ranks().list();
    std::erase(others, topology_.rank);
    return others;
  });
}

void Waiter::pause(Clock::duration waited, FunctionRef<bool()> ready, bool is_handshake) {
  if (memory_.pace != nullptr) return sleep(ready, kSleep);
  if (is_patient()) {
    // Messages wake nobody. A handshake comes soon, if its sender is there.
    const bool has_messages = drives_transport() || poll_ != nullptr;
    std::chrono::nanoseconds limit = kSleep;
    if (has_messages) limit = std::chrono::nanoseconds(patience_->nap.load());
    if (is_handshake)
      limit = std::min(limit, std::max<std::chrono::nanoseconds>(kFirstNap, waited));
    sleep(ready, limit);
  } else if (waited < spin_) {
    relax();
  } else if (poll_ != nullptr && waited >= spin_ + kYieldForMessages) {
    nap();
  } else if (waited < spin_ + yield_) {
    sched_yield();
  } else {
    sleep(ready, kSleep);
  }
}

/// The flag is set before the last look, and wake() looks at it after the signal, but neither has
/// the fence that would make this watertight: a fence in every signal would cost more than a sleep
/// of one millisecond that is lost once in a great while.
void Waiter::sleep(FunctionRef<bool()> ready, std::chrono::nanoseconds limit) {
  ControlBlock& node = memory_.first();
  const std::uint32_t seen = node.wakeups.load(std::memory_order_acquire);
  node.sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (memory_.pace != nullptr) {
    if (!ready()) memory_.pace->wait();
  } else if (!ready()) {
    const timespec time{0, limit.count()};
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&node.wakeups), FUTEX_WAIT, seen, &time,
            nullptr, 0);
  }
  node.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void Waiter::give_up() {
  fail(ErrorCode::communication, call_name() + ": " + name_of(topology_, topology_.rank) +
                                     " gave it up: its store or communicator was destroyed before "
                                     "its asynchronous calls were complete; wait() for them first");
}

void Waiter::interrupt() {
  fail(ErrorCode::communication, call_name() + ": " + name_of(topology_, topology_.rank) +
                                     " was interrupted by a signal while it waited");
}

bool raise_in_node(const NodeMemory& memory, ErrorCode code, const std::string& text) {
  ControlBlock& node = memory.first();
  std::uint32_t healthy = kHealthy;
  if (!node.failure.compare_exchange_strong(healthy, kRaising)) return false;
  node.failure_code = static_cast<std::uint32_t>(code);
  copy_text(node.failure_text, text);
  node.failure.store(kRaised, std::memory_order_release);
  wake_node(memory);
  return true;
}

void Waiter::wake_sleepers() { wake_node(memory_); }

/// `waited` is how long the wait has taken in which they are read, if one is going on.
void Waiter::read_notices(std::optional<Clock::duration> waited) {
  const bool is_waiting = waited && call_ != nullptr && !call_->is_message;
  while (const auto notice = transport_->poll_notice()) {
    if (notice->kind == Notice::Kind::left) {
      left_elsewhere_[notice->rank] = notice->sequence;
    } else if (notice->kind == Notice::Kind::node_left) {
      nodes_left_[topology_.node_of(notice->rank)] = notice->sequence;
    } else if (notice->kind == Notice::Kind::overdue) {
      if (!is_waiting || notice->sequence < call_->sequence) continue;
      overdue_.askers.push_back(notice->rank);
      be_asked(*waited);
    } else if (notice->kind == Notice::Kind::waits_too) {
      const auto question = overdue_.questions.find(notice->rank);
      if (is_waiting && question != overdue_.questions.end()) question->second.close();
    } else if (!failed()) {
      raise_failure(static_cast<ErrorCode>(notice->code), notice->text);
    }
  }
}

void Waiter::throw_failure() const {
  const ControlBlock& node = memory_.first();
  throw Error(static_cast<ErrorCode>(node.failure_code), node.failure_text, ErrorScope::failed,
              /*reporter=*/false);
}

bool Waiter::raise_failure(ErrorCode code, const std::string& text) {
  if (!raise_in_node(memory_, code, text)) return false;
  Notice notice;
  notice.kind = Notice::Kind::failed;
  notice.rank = topology_.rank;
  notice.code = static_cast<std::uint32_t>(code);
  copy_text(notice.text, text);
  tell_other_nodes(notice);
  return true;
}

void Waiter::fail(ErrorCode code, const std::string& text, bool reporter) {
  if (!raise_failure(code, text)) {
    const auto limit = Clock::now() + kLongestPoll;  // who raises may be killed meanwhile
    while (!raised() && Clock::now() < limit) sched_yield();
    check_failure();
  }
  throw Error(code, text, ErrorScope::failed, reporter);
}

/// Among few nodes every rank says so. Among many the last one of a node does, for all of them: a
/// node where others are left learns from its own memory who is not there, and then says so.
void Waiter::leave(std::uint64_t last_sequence, bool by_exception) {
  const std::uint64_t left = (last_sequence + 1) | (by_exception ? kLeftByException : 0);
  memory_.control().left.store(left, std::memory_order_release);
  wake();
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

/// The call that the first of its ranks to leave was in last.
std::uint64_t Waiter::left_of_node() const {
  std::uint64_t earliest = ~std::uint64_t{0};
  std::uint64_t flag = 0;
  for (const Peer& peer : memory_.peers) {
    const std::uint64_t left = peer.control().left.load(std::memory_order_acquire);
    earliest = std::min(earliest, left & ~kLeftByException);
    flag |= left & kLeftByException;
  }
  return earliest | flag;
}

/// To the first rank of each: it passes a failure on through its node's memory. Among many nodes,
/// to those at a distance of a power of two in both directions, who pass failures on in their turn:
/// all learn of one within log2 N messages after each other, by many ways. Nobody passes on that a
/// node has left. It need not be known everywhere: where some nodes wait in a call that others have
/// left, one that waits for its next message waits for one of these, and what it says is a failure.
void Waiter::tell_other_nodes(const Notice& notice) noexcept {
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

}  // namespace tutti::collectives
