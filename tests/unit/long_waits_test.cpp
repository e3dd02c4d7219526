// SPDX-License-Identifier: Apache-2.0
// What a missing rank does in a call of another group, with threads as ranks.
#include "collectives/wait/long_waits.hpp"

#include <atomic>
#include <chrono>
#include <doctest/doctest.h>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/job/group.hpp"
#include "unit/threads.hpp"

using namespace tutti;
using collectives::LongWaits;
using Clock = LongWaits::Clock;

namespace {

bool has(const std::string& text, const std::string& words) {
  INFO(text);
  return text.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("long waits are shown to ranks that wait in other groups, while they last") {
  const auto waits = std::make_unique<LongWaits>();
  CHECK(waits->in_other_groups(0).empty());
  const auto long_ago = Clock::now() - std::chrono::seconds(12);
  {
    const LongWaits::Shown first(*waits, 64, "a push", long_ago);
    CHECK(waits->in_other_groups(64).empty());
    CHECK(waits->in_other_groups(0).starts_with("waits in a push for 12"));
    const LongWaits::Shown second(*waits, 128, "a barrier", long_ago);
    CHECK(has(waits->in_other_groups(0), " s and in a barrier for 12"));
    CHECK(waits->in_other_groups(64).starts_with("waits in a barrier for 12"));
  }
  CHECK(waits->in_other_groups(0).empty());
}

TEST_CASE("a wait has a number, and none of an earlier one's words") {
  const auto waits = std::make_unique<LongWaits>();
  { const LongWaits::Shown earlier(*waits, 64, std::string(100, 'x'), Clock::now()); }
  for (const std::string words : {"", "seven..", "eight...", "nine....."}) {
    const LongWaits::Shown shown(*waits, 3, words, Clock::now());
    CHECK(waits->in_other_groups(64).starts_with("waits in " + words + " for "));
    CHECK(waits->shows(3));
    CHECK_FALSE(waits->shows(64));
  }
  CHECK_FALSE(waits->shows(3));
}

TEST_CASE("words that are too long are cut off, and waits beyond the places are not shown") {
  const auto waits = std::make_unique<LongWaits>();
  const std::string words(LongWaits::kLongest + 1, 'x');
  {
    const LongWaits::Shown shown(*waits, 1, words, Clock::now());
    const std::string text = waits->in_other_groups(0);
    CHECK(has(text, "waits in " + words.substr(1) + " for "));
    CHECK_FALSE(has(text, words));
  }
  std::vector<std::unique_ptr<LongWaits::Shown>> all;
  for (std::size_t i = 0; i <= LongWaits::kPlaces; ++i) {
    all.push_back(std::make_unique<LongWaits::Shown>(*waits, 1, std::to_string(i), Clock::now()));
  }
  CHECK(has(waits->in_other_groups(0), " in " + std::to_string(LongWaits::kPlaces - 1) + " for"));
  CHECK_FALSE(has(waits->in_other_groups(0), " in " + std::to_string(LongWaits::kPlaces) + " for"));
  all.front().reset();
  const LongWaits::Shown later(*waits, 1, "a later one", Clock::now());
  CHECK(has(waits->in_other_groups(0), "in a later one for"));
}

TEST_CASE("a reader sees the words of one wait") {
  const auto waits = std::make_unique<LongWaits>();
  std::atomic<bool> done{false};
  std::thread shows([&] {
    for (int i = 0; !done; ++i) {
      const std::string words(LongWaits::kLongest, static_cast<char>('a' + i % 26));
      const LongWaits::Shown shown(*waits, 1, words, Clock::now());
    }
  });
  int mixed = 0;
  for (int seen = 0; seen < 2000;) {
    const std::string text = waits->in_other_groups(0);
    if (text.empty()) continue;
    constexpr std::size_t kBefore = std::string_view("waits in ").size();
    const std::string words = text.substr(kBefore, LongWaits::kLongest);
    if (words != std::string(LongWaits::kLongest, words[0])) ++mixed;
    ++seen;
  }
  done = true;
  shows.join();
  CHECK(mixed == 0);
}

TEST_CASE("a missing rank of this node is named with the call of another group that it waits in") {
  Settings settings;
  settings.timeout = test::kShortDeadline;
  settings.log = LogLevel::quiet;
  const auto outcomes = test::as_ranks({3}, settings, [&](Communicator& world) {
    Communicator group = world.split(0);
    if (world.rank() == 0) return world.barrier();
    std::this_thread::sleep_for(std::chrono::seconds(1));  // the time of rank 0 is up first
    group.barrier();
  });
  REQUIRE(outcomes[0]);
  const std::string text = outcomes[0]->what();
  for (const std::string rank : {"rank 1", "rank 2"}) {
    CHECK(has(text, "; " + rank + " made its last call: "));
  }
  CHECK(has(text, ", waits in barrier (call 1 of the group of ranks 0, 1 and 2 of the job) for "));
}

TEST_CASE("a missing rank of another node is named with what it tells") {
  Settings settings;
  settings.timeout = test::kShortDeadline;
  settings.log = LogLevel::quiet;
  const auto groups = make_thread_groups({1, 1}, settings);
  std::atomic<bool> done{false};
  std::thread elsewhere([&] {
    while (!done) {
      groups[1]->engine().waiter().answer_elsewhere("waits in another call");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  std::optional<Error> error;
  try {
    Communicator(groups[0]).barrier();
  } catch (const Error& caught) {
    error = caught;
  }
  done = true;
  elsewhere.join();
  REQUIRE(error);
  CHECK(error->code() == ErrorCode::timeout);
  CHECK(has(error->what(), "which did not arrive; rank 1 waits in another call; see"));
}
