// SPDX-License-Identifier: Apache-2.0
#include "collectives/wait/wait.hpp"

#include <algorithm>
#include <ctime>
#include <sched.h>

#include "collectives/job/local_error.hpp"

namespace tutti::collectives {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kSpin = microseconds(20);  // longer than a hand-over between two cores takes
constexpr int kManyPolls = 100;           // some microseconds, longer than most waits
constexpr int kFewPolls = 16;             // if ranks share cores, a peer needs the core more
// Each poll for messages goes through MPI, and takes a microsecond or two: a hundred of them would
// occupy the core for too long where hosts share it.
constexpr int kMessagePolls = 8;
constexpr auto kYield = milliseconds(5);  // longer than a time slice of a peer
// Where many ranks share a core, a rank that yields only gets turns to poll again, whereas one that
// sleeps leaves them to ranks that have work. This is about twice the time in which all ranks of a
// core in step have had a turn.
constexpr auto kYieldCrowded = microseconds(12);
constexpr int kCrowd = 3;  // ranks per core
// While large messages move over a slow network, the core is left to the kernel, which moves them.
constexpr auto kYieldForMessages = microseconds(200);
constexpr std::chrono::nanoseconds kNap = microseconds(20);
constexpr auto kFirstNap = microseconds(50);  // the first sleep beside a thread that computes
constexpr auto kProgressAfter = microseconds(10);
constexpr auto kLongestPoll = seconds(1);
constexpr auto kWarnAtLast = seconds(30);
constexpr auto kLookAfter = seconds(2);  // a launcher that ends the job itself is faster
constexpr auto kLookEvery = milliseconds(500);
constexpr auto kShowAtLast = seconds(2);

void nap() {
  const timespec time{0, kNap.count()};
  nanosleep(&time, nullptr);
}

std::chrono::steady_clock::duration deadline_of(const Settings& settings) {
  using Duration = std::chrono::steady_clock::duration;
  if (settings.timeout.count() == 0) return Duration::max();
  return std::chrono::duration_cast<Duration>(settings.timeout);
}

bool is_inquiry(const Notice& notice) {
  return notice.kind == Notice::Kind::overdue || notice.kind == Notice::Kind::waits_too ||
         notice.kind == Notice::Kind::elsewhere;
}

/// Returns the number of polls before the clock is first read. In a simulation nothing changes
/// while a rank polls.
int polls_before_slow(const NodeMemory& memory, const Topology& topology) {
  if (memory.pace != nullptr) return 1;
  if (topology.num_nodes() > 1 && memory.size() == 1) return kMessagePolls;
  return topology.ranks_per_core > 1 ? kFewPolls : kManyPolls;
}

}  // namespace

std::atomic<bool (*)() noexcept>& interrupt_check() noexcept {
  static std::atomic<bool (*)() noexcept> check{nullptr};
  return check;
}

bool interrupted() noexcept {
  const auto check = interrupt_check().load(std::memory_order_relaxed);
  return check != nullptr && check();
}

Waiter::Waiter(const NodeMemory& memory, const Topology& topology, const Settings& settings,
               Transport* transport)
    : memory_(memory),
      topology_(topology),
      transport_(transport),
      limits_{.deadline = deadline_of(settings),
              .grace = std::chrono::duration_cast<Clock::duration>(settings.grace)},
      warn_after_(std::min<Clock::duration>(limits_.deadline / 10, kWarnAtLast)),
      show_after_(std::min<Clock::duration>(limits_.deadline / 4, kShowAtLast)),
      spin_(topology.ranks_per_core > 1 ? Clock::duration::zero() : Clock::duration(kSpin)),
      yield_(topology.ranks_per_core >= kCrowd && topology.num_nodes() == 1
                 ? Clock::duration(kYieldCrowded)
                 : Clock::duration(kYield)),
      fast_polls_(polls_before_slow(memory, topology)),
      log_(topology, settings.log),
      core_(topology.ranks_per_core > 1),
      sleepers_(memory, topology),
      failure_(memory, topology, transport, sleepers_),
      inquiry_(memory, topology, transport, failure_, sleepers_, limits_) {}

void Waiter::slow(FunctionRef<bool()> ready, FunctionRef<std::vector<int>()> missing,
                  Clock::duration progress_every) {
  auto last = now();
  Clock::duration polled{0};
  Clock::duration polled_in_grace{0};
  inquiry_.begin();
  bool warned = !log_.writes(LogLevel::warning);
  auto look_at = Clock::duration(kLookAfter);
  ShownWait shown{.next = show_after_, .words = {}};
  auto progress_at = Clock::duration(kProgressAfter);
  if (spares_progress()) progress_at = Sleepers::kLongest;
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
      progress_at =
          polled + (spares_progress() ? Clock::duration(Sleepers::kLongest) : progress_every);
    }
    if (polled >= kProgressAfter) {
      if (failure_.failed()) {
        if (ready()) return;  // what arrived before the failure counts
        failure_.check();
      }
      failure_.check_leavers(missing);
    }
    if (polled >= look_at) {
      failure_.check_processes(missing);
      look_at = polled + kLookEvery;
    }
    if (polled >= shown.next) show(shown, polled);
    if (polled >= interrupted_at) {
      if (interrupted()) interrupt();
      interrupted_at = polled + kInterruptedEvery;
    }
    if (!warned && polled >= warn_after_) {
      warn(missing, polled);
      warned = true;
    }
    const bool is_terminating = polled_in_grace >= limits_.grace;
    const bool is_asked_now = inquiry_.is_asked(polled);
    if (polled >= limits_.deadline || is_terminating || is_asked_now) {
      const std::vector<int> late = missing();
      if (ready()) return;  // they may have arrived in the meantime
      inquiry_.go_on(late, polled, is_terminating);
    } else if (inquiry_.is_open()) {
      inquiry_.close();
    }
    pause(polled, ready, missing, progress_every > Clock::duration::zero());
  }
  if (!is_beside_ && !core_.was_wanted()) sleepers_.stay_awake();
}

void Waiter::check_peers() {
  failure_.check();
  const auto time = now();
  if (time - looked_at_ < kLookEvery) return;
  looked_at_ = time;
  if (drives_transport()) {
    transport_->progress();
    read_notices();
    failure_.check();
  }
  failure_.check_processes([&] {
    std::vector<int> others = topology_.local_ranks().list();
    std::erase(others, topology_.rank);
    return others;
  });
}

void Waiter::pause(Clock::duration waited, FunctionRef<bool()> ready,
                   FunctionRef<std::vector<int>()> missing, bool is_handshake) {
  if (memory_.pace == nullptr) {
    if (is_patient()) return sleepers_.sleep(ready, missing, patient_sleep(waited, is_handshake));
    if (waited < spin_) return relax();
    if (core_.was_wanted() && core_.is_wanted(Clock::now())) {
      const bool has_messages = poll_ != nullptr || is_handshake;  // messages wake no sleeper
      return sleepers_.sleep(ready, missing, has_messages ? kNap : Sleepers::kLongest);
    }
    if (poll_ != nullptr && waited >= spin_ + kYieldForMessages) return nap();
    if (waited < spin_ + yield_) return yield();
  }
  sleepers_.sleep(ready, missing, Sleepers::kLongest);
}

/// Returns the duration of a sleep of a patient wait. It is limited where messages are awaited,
/// which wake no sleeper; a handshake arrives soon if its sender is there.
std::chrono::nanoseconds Waiter::patient_sleep(Clock::duration waited, bool is_handshake) const {
  std::chrono::nanoseconds limit = Sleepers::kLongest;
  if (drives_transport() || poll_ != nullptr) {
    limit = std::chrono::nanoseconds(patience_->nap.load());
  }
  if (!is_handshake) return limit;
  return std::min(limit, std::max<std::chrono::nanoseconds>(kFirstNap, waited));
}

void Waiter::yield() {
  const auto begin = Clock::now();
  sched_yield();
  const auto end = Clock::now();
  core_.came_back(end - begin, end);
}

void Waiter::give_up() {
  fail(ErrorCode::communication, failure_.call_name() + ": " + name_of(topology_, topology_.rank) +
                                     " gave it up: its store or communicator was destroyed, or its "
                                     "program ended, before its asynchronous calls were complete; "
                                     "wait() for them first");
}

void Waiter::interrupt() {
  fail(ErrorCode::communication, failure_.call_name() + ": " + name_of(topology_, topology_.rank) +
                                     " was interrupted by a signal while it waited");
}

/// Handles the notices that have arrived. `waited` is the duration of the current wait, if there is
/// one.
void Waiter::read_notices(std::optional<Clock::duration> waited) {
  while (const auto notice = transport_->poll_notice()) {
    if (!is_inquiry(*notice)) {
      failure_.take(*notice);
    } else if (waited) {
      inquiry_.take(*notice, *waited);
    }
  }
}

void Waiter::warn(FunctionRef<std::vector<int>()> missing_ranks, Clock::duration waited) const {
  const std::vector<int> missing = missing_ranks();
  const auto is_missing = [&](int rank) {
    return std::find(missing.begin(), missing.end(), rank) != missing.end();
  };
  const auto& local = topology_.local_ranks();  // only one rank of the node warns
  const auto speaker = std::find_if_not(local.begin(), local.end(), is_missing);
  const bool speaks = missing.empty() || (speaker != local.end() && *speaker == topology_.rank);
  if (!speaks) return;
  log_.warn("has waited " + in_seconds(waited) + " for " +
            (missing.empty() ? std::string("its GPU") : names_of(topology_, missing)) + " in " +
            failure_.call_name() + failure_.observations(missing));
}

/// Shows what this rank waits in to those that wait for it in calls of other groups.
void Waiter::show(ShownWait& shown, Clock::duration waited) const {
  shown.next = waited + kLookEvery;
  const bool is_shown = shown.words && shown.words->has_place();
  if (failure_.call() == nullptr || (is_shown && other_groups_ == nullptr)) return;
  static_cast<void>(caught([&] {  // without memory for the words they are not shown
    const std::string name = failure_.call_name();
    const Peer& self = memory_.self();
    if (!is_shown) {
      shown.words.emplace(self.long_waits(), self.offset_of_control(), name, Clock::now() - waited);
    }
    if (other_groups_ != nullptr) {
      (*other_groups_)("waits in " + name + " for " + in_seconds(waited));
    }
  }));
}

void Waiter::answer_elsewhere(const std::string& doing) {
  const bool is_in_a_call = failure_.call() != nullptr;
  if (is_in_a_call || transport_ == nullptr || topology_.num_nodes() == 1) return;
  while (const auto notice = transport_->poll_notice()) {
    if (!is_inquiry(*notice)) {
      failure_.take(*notice);
    } else if (notice->kind == Notice::Kind::overdue) {
      Notice answer;
      answer.kind = Notice::Kind::elsewhere;
      answer.rank = topology_.rank;
      answer.sequence = notice->sequence;
      answer.say(doing);
      transport_->notify(notice->rank, answer);
    }
  }
}

}  // namespace tutti::collectives
