// SPDX-License-Identifier: Apache-2.0
// How waits share cores: they yield and sleep at the right times, and miss no signal.
#include "collectives/wait/wait.hpp"

#include <atomic>
#include <chrono>
#include <doctest/doctest.h>
#include <functional>
#include <memory>
#include <optional>
#include <pthread.h>
#include <sched.h>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "collectives/wait/core_share.hpp"
#include "collectives/wait/sleepers.hpp"
#include "tests/support/emulated.hpp"

using namespace tutti;
using collectives::ControlBlock;
using collectives::CoreShare;
using collectives::NodeMemory;
using collectives::Sleepers;
using collectives::Topology;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

using Clock = std::chrono::steady_clock;

/// Two ranks of one node, as each of them sees it.
class TwoRanks {
 public:
  TwoRanks() {
    for (int rank = 0; rank < 2; ++rank) {
      memories_[rank].local_rank = rank;
      memories_[rank].arena_bytes = sizeof(ControlBlock);
      for (const auto& block : blocks_) {
        memories_[rank].peers.push_back({reinterpret_cast<std::byte*>(block.get()), block.get()});
      }
      topologies_[rank] = Topology::consecutive(rank, {2});
    }
  }
  [[nodiscard]] const NodeMemory& memory(int rank) const { return memories_[rank]; }
  [[nodiscard]] const Topology& topology(int rank) const { return topologies_[rank]; }
  [[nodiscard]] std::atomic<std::uint64_t>& step(int rank) { return blocks_[rank]->step; }

 private:
  const std::unique_ptr<ControlBlock> blocks_[2] = {std::make_unique<ControlBlock>(),
                                                    std::make_unique<ControlBlock>()};
  NodeMemory memories_[2];
  Topology topologies_[2];
};

std::vector<int> only(int rank) { return {rank}; }

/// A program that computes, on this core alone, as long as the object lives.
class Hog {
 public:
  explicit Hog(int core) : thread_([this] { run(); }) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    is_there_ = pthread_setaffinity_np(thread_.native_handle(), sizeof cores, &cores) == 0;
  }
  ~Hog() {
    ends_ = true;
    thread_.join();
  }
  Hog(const Hog&) = delete;
  Hog& operator=(const Hog&) = delete;
  [[nodiscard]] bool is_there() const { return is_there_; }

 private:
  void run() const {
    while (!ends_.load(std::memory_order_relaxed)) {
    }
  }

  std::atomic<bool> ends_{false};
  bool is_there_ = false;
  std::thread thread_;  // begun last, because it reads ends_
};

/// Keeps this thread on its present core, until the end of the object.
class OnOneCore {
 public:
  OnOneCore() : core_(sched_getcpu()) {
    sched_getaffinity(0, sizeof before_, &before_);
    if (core_ < 0) return;
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core_, &cores);
    is_kept_ = sched_setaffinity(0, sizeof cores, &cores) == 0;
  }
  ~OnOneCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OnOneCore(const OnOneCore&) = delete;
  OnOneCore& operator=(const OnOneCore&) = delete;
  [[nodiscard]] bool is_kept() const { return is_kept_; }
  [[nodiscard]] int core() const { return core_; }

 private:
  cpu_set_t before_{};
  int core_;
  bool is_kept_ = false;
};

/// True if a thread that yields beside a program that computes loses the core for a while on this
/// machine.
bool yields_are_long() {
  for (int i = 0; i < 100; ++i) {
    const auto begin = Clock::now();
    sched_yield();
    if (Clock::now() - begin > milliseconds(1)) return true;
  }
  return false;
}

struct Switches {
  long voluntary;    ///< by a thread that sleeps
  long involuntary;  ///< by a thread that is preempted, or yields
};
Switches switches_of_this_thread() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return {usage.ru_nvcsw, usage.ru_nivcsw};
}

}  // namespace

TEST_CASE(
    "a wait sleeps while its last yield took long, and asks again at longer and longer times") {
  CoreShare core(/*peers_share=*/false);
  const Clock::time_point begin{seconds(1000)};
  for (int i = 0; i < 100; ++i) core.came_back(microseconds(1), begin);
  CHECK_FALSE(core.was_wanted());

  core.came_back(milliseconds(4), begin);
  CHECK(core.is_wanted(begin));
  CHECK(core.is_wanted(begin + milliseconds(99)));
  CHECK_FALSE(core.is_wanted(begin + milliseconds(100)));  // tries a yield again
  CHECK(core.was_wanted());
  core.came_back(milliseconds(3), begin + milliseconds(103));
  CHECK(core.is_wanted(begin + milliseconds(302)));
  CHECK_FALSE(core.is_wanted(begin + milliseconds(303)));
  for (int i = 0; i < 20; ++i) core.came_back(milliseconds(4), begin);
  CHECK(core.is_wanted(begin + milliseconds(999)));
  CHECK_FALSE(core.is_wanted(begin + seconds(1)));
}

TEST_CASE("a wait yields again once several yields in a row have come back soon") {
  CoreShare core(/*peers_share=*/false);
  const Clock::time_point begin{seconds(1000)};
  core.came_back(milliseconds(4), begin);
  const auto later = begin + milliseconds(100);
  for (int i = 0; i < 7; ++i) core.came_back(microseconds(1), later);
  CHECK(core.was_wanted());
  // A program that has had its share let seven yields come back.
  core.came_back(milliseconds(4), later);
  for (int i = 0; i < 7; ++i) core.came_back(microseconds(1), later);
  CHECK(core.was_wanted());
  core.came_back(microseconds(1), later);
  CHECK_FALSE(core.was_wanted());
}

TEST_CASE("ranks that share a core may compute for a while before a yield comes back") {
  CoreShare alone(/*peers_share=*/false);
  CoreShare shared(/*peers_share=*/true);
  for (CoreShare* core : {&alone, &shared}) core->came_back(microseconds(300), Clock::now());
  CHECK(alone.was_wanted());
  CHECK_FALSE(shared.was_wanted());
  shared.came_back(microseconds(750), Clock::now());  // the shortest time slice of CFS
  CHECK(shared.was_wanted());
}

TEST_CASE("a rank whose core another program wants sleeps while it waits") {
  const OnOneCore here;
  if (!here.is_kept() || test::is_emulated()) {
    MESSAGE("skipped: a thread cannot be kept on one core here");
    return;
  }
  const Hog hog(here.core());
  if (!hog.is_there() || !yields_are_long()) {
    MESSAGE("skipped: here a yield beside a program that computes comes back at once");
    return;
  }
  constexpr int kSteps = 200;
  TwoRanks ranks;
  const Settings settings;
  std::atomic<std::uint64_t> begun{0};
  // The other rank has no core of its own, so that a machine with one core suffices.
  std::thread other([&] {
    collectives::Waiter waiter(ranks.memory(1), ranks.topology(1), settings, nullptr);
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      while (begun.load() < step) std::this_thread::sleep_for(microseconds(50));
      std::this_thread::sleep_for(microseconds(300));
      ranks.step(1).store(step, std::memory_order_release);
      waiter.wake();
    }
  });
  collectives::Waiter waiter(ranks.memory(0), ranks.topology(0), settings, nullptr);
  const Switches before = switches_of_this_thread();
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    begun.store(step);
    waiter.until([&] { return ranks.step(1).load(std::memory_order_acquire) >= step; },
                 [] { return only(1); });
  }
  const Switches after = switches_of_this_thread();
  other.join();
  const long slept = after.voluntary - before.voluntary;
  const long lost = after.involuntary - before.involuntary;
  CAPTURE(slept);
  CAPTURE(lost);
  CHECK(slept > kSteps / 2);
  CHECK(slept > 2 * lost);
}

TEST_CASE("a signal wakes who sleeps until it comes, however long a sleep may take") {
  constexpr std::uint64_t kSteps = 20'000;
  constexpr auto kForGood = std::chrono::hours(1);  // a missed signal ends at the test's time limit
  TwoRanks ranks;
  const auto take_turns = [&](int self) {
    Sleepers sleepers(ranks.memory(self), ranks.topology(self));
    const int other = 1 - self;
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      const auto ready = [&] { return ranks.step(other).load(std::memory_order_acquire) >= step; };
      ranks.step(self).store(step, std::memory_order_release);
      sleepers.wake();
      for (std::uint64_t i = 0; i < step % 64; ++i) collectives::relax();
      while (!ready())
        sleepers.sleep(
            ready, [&] { return only(other); }, kForGood);
    }
  };
  std::thread other([&] { take_turns(1); });
  take_turns(0);
  other.join();
  CHECK(ranks.step(0) == kSteps);
  CHECK(ranks.step(1) == kSteps);
}
