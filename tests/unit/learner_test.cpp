// SPDX-License-Identifier: Apache-2.0
// The choices of the learner when it is told times; no path changes a bit.
#include "collectives/choice/learner.hpp"

#include <doctest/doctest.h>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "collectives/choice/call_time.hpp"
#include "collectives/node/call.hpp"
#include "unit/threads.hpp"

using namespace tutti;
using namespace tutti::collectives;

namespace {

constexpr CacheSizes kCaches{.level1 = 32 << 10, .last_level = 32 << 20};
constexpr std::size_t kBytes = std::size_t{1} << 20;

Tuning tuning_of(int ranks, const std::string& tuning = "learn",
                 const std::string& algorithms = "") {
  Settings settings;
  settings.tuning = tuning;
  settings.algorithms = algorithms;
  return Tuning::choose(Topology::consecutive(0, {ranks}), settings, kCaches);
}

CallClass ordinary(std::size_t bytes = kBytes) {
  return {.kind = Kind::allreduce,
          .inputs = Location::ordinary,
          .apart = true,
          .size = static_cast<std::uint8_t>(std::bit_width(bytes) - 1)};
}

using Times = std::function<std::uint32_t(const Path&)>;

/// The time of a call by each path: staged inputs `staged`, fetched ones `fetched`, and so on.
Times fetched_takes(std::uint32_t fetched, std::uint32_t staged) {
  return [=](const Path& path) { return path.inputs == Inputs::fetched ? fetched : staged; };
}

struct Job {
  std::vector<Path> paths;
  double time = 0;
  double least = 0;  ///< time if every call had taken the best path that was known
};

/// Makes calls of one class, which take these times.
Job make_calls(Learner& learner, int calls, const Times& times,
               const CallClass& call = ordinary()) {
  Job job;
  for (int i = 0; i < calls; ++i) {
    const bool announced = learner.plan(call).inputs == Inputs::announced;
    const Path path = learner.choose(call, announced);
    job.paths.push_back(path);
    job.time += times(path);
    learner.observe(times(path));
  }
  return job;
}

}  // namespace

TEST_CASE("the learner settles on the path that takes the least time") {
  const Tuning tuning = tuning_of(2);
  for (const bool fetching_wins : {false, true}) {
    CAPTURE(fetching_wins);
    Learner learner(tuning, 2, /*can_fetch=*/true);
    const auto times = fetching_wins ? fetched_takes(700, 1000) : fetched_takes(1000, 700);
    const Job job = make_calls(learner, 300, times);
    CHECK_FALSE(learner.is_learning());
    CHECK((job.paths.back().inputs == Inputs::fetched) == fetching_wins);
    REQUIRE(learner.learnt().size() == 1);
    CHECK(learner.learnt().front().path == job.paths.back());
    CHECK(learner.learnt().front().margin == doctest::Approx(fetching_wins ? 1000.0 / 700 : 1));
  }
}

TEST_CASE("it finds the writes that are fastest, too") {
  const Tuning tuning = tuning_of(2);
  Learner learner(tuning, 2, true);
  const Job job = make_calls(learner, 400, [](const Path& path) {
    const std::uint32_t base = path.inputs == Inputs::staged ? 1000 : 1500;
    return base - (path.slots == WritePolicy::cached ? 200 : 0) -
           (path.outputs == WritePolicy::streaming ? 100 : 0);
  });
  CHECK(job.paths.back().slots == WritePolicy::cached);
  CHECK(job.paths.back().inputs == Inputs::staged);
}

TEST_CASE("the static choice is tried with other writes of its slots, whatever else is faster") {
  const Tuning tuning = tuning_of(2);
  const WritePolicy usual = tuning.slot_writes(kBytes);
  Learner learner(tuning, 2, true);
  const Job job = make_calls(learner, 400, [&](const Path& path) -> std::uint32_t {
    if (path.inputs != Inputs::staged) return 1000;
    return path.slots == usual ? 3000 : 500;
  });
  CHECK(job.paths.front().slots == usual);
  CHECK(job.paths.back().inputs == Inputs::staged);
  CHECK(job.paths.back().slots != usual);
}

TEST_CASE("slots are tried with both ways of writing where the static choice has none") {
  CallClass scatter = ordinary();
  scatter.kind = Kind::scatter;
  const Tuning tuning = tuning_of(2);
  Learner learner(tuning, 2, true);
  const Times times = [&](const Path& path) -> std::uint32_t {
    if (path.inputs != Inputs::staged) return 1000;
    return path.slots == tuning.slot_writes(kBytes) ? 3000 : 500;
  };
  const Job job = make_calls(learner, 400, times, scatter);
  CHECK(job.paths.front().inputs == Inputs::fetched);
  CHECK(job.paths.back().inputs == Inputs::staged);
  CHECK(job.paths.back().slots != tuning.slot_writes(kBytes));
}

TEST_CASE("a path that was fast in its trials alone gives way after a few hundred calls") {
  const Tuning tuning = tuning_of(2);
  Learner learner(tuning, 2, true);
  do {
    make_calls(learner, 1, fetched_takes(500, 1000));
  } while (learner.is_learning());
  const Job job = make_calls(learner, 400, fetched_takes(2000, 1000));
  CHECK(job.paths.front().inputs == Inputs::fetched);
  CHECK(job.paths.back().inputs != Inputs::fetched);
}

TEST_CASE("calls that wait for a core now and then leave a class settled") {
  const Tuning tuning = tuning_of(2);
  Learner learner(tuning, 2, true);
  int calls = 0;
  const Times times = [&](const Path& path) -> std::uint32_t {
    return (path.inputs == Inputs::fetched ? 700 : 1000) * (++calls % 20 == 0 ? 20 : 1);
  };
  do {
    make_calls(learner, 1, times);
  } while (learner.is_learning());
  int learning = 0;
  for (int i = 0; i < 5000; ++i) {
    make_calls(learner, 1, times);
    learning += learner.is_learning() ? 1 : 0;
  }
  CHECK(learning == 0);
}

TEST_CASE("the first calls take the static choice") {
  const Tuning tuning = tuning_of(2);
  Learner learner(tuning, 2, true);
  const Job job = make_calls(learner, 10, fetched_takes(100, 1000));
  const Path first = tuning.path_for(ordinary(), kBytes, 2, true);
  for (const Path& path : job.paths) CHECK(path == first);
}

TEST_CASE("trials cost at most a twentieth of the time of the first hundred calls") {
  std::mt19937 random(1);
  for (int attempt = 0; attempt < (test::kFewRounds ? 20 : 200); ++attempt) {
    // Every path takes between the static one's time and up to twice that.
    std::map<std::string, std::uint32_t> times;
    const Tuning tuning = tuning_of(attempt % 2 == 0 ? 2 : 8);
    const int ranks = attempt % 2 == 0 ? 2 : 8;
    times[to_string(tuning.path_for(ordinary(), kBytes, ranks, true))] = 1000;
    const auto take = [&](const Path& path) {
      return times.try_emplace(to_string(path), 1000 + random() % 1000).first->second;
    };
    for (const int calls : {20, 50, 100, 1000}) {
      Learner learner(tuning, ranks, true);
      const Job job = make_calls(learner, calls, take);
      // The last trial may cost more than expected: two calls of twice the time.
      CHECK(job.time <= 1000.0 * calls * 1.05 + 1500);
      if (calls >= 100) CHECK(job.time <= 1000.0 * calls * 1.065);
    }
  }
}

TEST_CASE("a path that is faster is no cost") {
  const Tuning tuning = tuning_of(2);
  Learner learner(tuning, 2, true);
  const Job job = make_calls(learner, 100, fetched_takes(500, 1000));
  CHECK(job.time < 85'000);
}

TEST_CASE("single calls that take long do not decide") {
  std::mt19937 random(7);
  const Tuning tuning = tuning_of(2);
  int right = 0;
  constexpr int kAttempts = test::kFewRounds ? 20 : 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Learner learner(tuning, 2, true);
    const Job job = make_calls(learner, 1000, [&](const Path& path) {
      const std::uint32_t time = path.inputs == Inputs::fetched ? 700 : 1000;
      return random() % 20 == 0 ? 20 * time : time + static_cast<std::uint32_t>(random() % 50);
    });
    right += job.paths.back().inputs == Inputs::fetched ? 1 : 0;
  }
  CHECK(right >= kAttempts * 9 / 10);
}

TEST_CASE("a class that comes to take another time is learnt again, and no other") {
  const Tuning tuning = tuning_of(2);
  Learner learner(tuning, 2, true);
  make_calls(learner, 300, fetched_takes(700, 1000));
  REQUIRE_FALSE(learner.is_learning());
  make_calls(learner, 5000, fetched_takes(700, 1000));
  CHECK_FALSE(learner.is_learning());
  const Job changed = make_calls(learner, 3000, fetched_takes(2000, 1000));
  CHECK(changed.paths.front().inputs == Inputs::fetched);
  CHECK(changed.paths.back().inputs != Inputs::fetched);
  CHECK_FALSE(learner.is_learning());
}

TEST_CASE("calls without a time teach nothing") {
  const Tuning tuning = tuning_of(2);
  Learner learner(tuning, 2, true);
  const Job job = make_calls(learner, 500, [](const Path&) { return 0; });
  const Path first = tuning.path_for(ordinary(), kBytes, 2, true);
  for (const Path& path : job.paths) CHECK(path == first);
}

TEST_CASE("the time of a call begins with the last rank, and ends with the last rank") {
  constexpr std::uint64_t unit = 16;
  const auto longest = [](const std::vector<std::pair<std::uint64_t, std::uint64_t>>& ranks) {
    std::set<std::uint32_t> found;  // every rank reckons from its own end
    for (const auto& own : ranks) {
      LongestTime time(CallTime::between(own.first * unit, own.second * unit));
      for (const auto& [begun, ended] : ranks) {
        time.add(CallTime::between(begun * unit, ended * unit));
      }
      found.insert(time.get());
    }
    REQUIRE(found.size() == 1);
    return *found.begin();
  };
  CHECK(longest({{1000, 1300}}) == 300);
  CHECK(longest({{1000, 1300}, {1200, 1290}}) == 100);
  CHECK(longest({{1290, 1310}, {1000, 1305}, {1100, 1320}}) == 30);
  CHECK(longest({{1000, 1000}}) == 1);
  constexpr std::uint64_t wrap = std::uint64_t{1} << 32;
  CHECK(longest({{wrap - 100, wrap + 50}, {wrap - 20, wrap - 1}}) == 70);
  CHECK(longest({{5 * wrap + 7, 5 * wrap + 1'000'007}}) / 1000 == 999);  // 1,000,000 rounded down
  CHECK(longest({{0, 1}, {0, wrap / 4}}) == 0);  // more than the ranks can tell each other
  CHECK(longest({{1000, 1100}, {1100, 1200}}) == 100);
  CHECK(longest({{1000, 1100}, {1200, 1300}}) == 100);
}

TEST_CASE("the duration of a call is rounded down by less than a thousandth") {
  std::mt19937_64 random(5);
  for (int i = 0; i < (test::kFewRounds ? 10'000 : 100'000); ++i) {
    const std::uint64_t duration = 1 + (random() >> 34) % (std::uint64_t{1} << (1 + random() % 29));
    const CallTime time = CallTime::between(1 << 20, (1 << 20) + duration * 16);
    REQUIRE(time.is_known());
    REQUIRE(static_cast<std::uint64_t>(time.duration()) <= duration);
    REQUIRE(static_cast<double>(time.duration()) > 0.999 * static_cast<double>(duration));
  }
}

TEST_CASE("two learners that are told the same choose the same, whatever one of them plans") {
  const Tuning tuning = tuning_of(4);
  Learner one(tuning, 4, true);
  Learner other(tuning, 4, true);
  std::mt19937 random(3);
  std::uint32_t last_time = 0;  // known once all ranks have planned, as in a job
  for (int call = 0; call < 3000; ++call) {
    const std::size_t bytes = std::size_t{2048} << random() % 3;
    CallClass common = ordinary(bytes);
    if (random() % 2 == 0) common.inputs = Location::mixed;
    const bool first = one.plan(ordinary(bytes)).inputs == Inputs::announced;
    CallClass elsewhere = ordinary(bytes);
    if (common.inputs == Location::mixed) elsewhere.inputs = Location::shared;
    const bool second = other.plan(elsewhere).inputs == Inputs::announced;
    one.observe(last_time);
    other.observe(last_time);
    const Path path = one.choose(common, first && second);
    REQUIRE(path == other.choose(common, first && second));
    REQUIRE((path.inputs == Inputs::announced) == (first && second));
    last_time = static_cast<std::uint32_t>(100 + random() % 1000);
  }
}

TEST_CASE("ranks that plan for other classes than the call's choose alike all the same") {
  const Tuning tuning = tuning_of(2, "at-once");
  Learner root(tuning, 2, true);
  Learner other(tuning, 2, true);
  constexpr std::size_t bytes = 2 << 10;
  const CallClass call = ordinary(bytes);
  CallClass elsewhere = call;
  elsewhere.inputs = Location::shared;
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {  // each rank plans before it hears of the time of the last call
    const auto time = static_cast<std::uint32_t>(100 + random() % 1000);
    const bool announced = root.plan(call).inputs == Inputs::announced;
    other.plan(elsewhere);
    root.observe(time);
    other.observe(time);
    REQUIRE(root.choose(call, announced) == other.choose(call, announced));
  }
  CHECK_FALSE(root.is_learning());
  CHECK_FALSE(other.is_learning());
}

TEST_CASE("a rank without inputs plans for where those of the others lie") {
  const Tuning tuning = tuning_of(2, "at-once");
  for (const bool announcing_wins : {false, true}) {
    CAPTURE(announcing_wins);
    Learner root(tuning, 2, true);
    Learner other(tuning, 2, true);
    CallClass call = ordinary(4 << 10);
    call.kind = Kind::broadcast;
    CallClass elsewhere = call;  // no input lies in ordinary memory
    elsewhere.inputs = Location::shared;
    bool is_announced = false;
    for (int i = 0; i < 300; ++i) {
      const bool first = root.plan(call).inputs == Inputs::announced;
      const bool second = other.plan(elsewhere).inputs == Inputs::announced;
      is_announced = first && second;
      const Path path = root.choose(call, is_announced);
      REQUIRE(path == other.choose(call, is_announced));
      const std::uint32_t time = is_announced == announcing_wins ? 500 : 900;
      root.observe(time);
      other.observe(time);
    }
    CHECK(is_announced == announcing_wins);
    CHECK_FALSE(root.is_learning());
  }
}

TEST_CASE("a row that this node cannot take is left out, and counted") {
  const Tuning tuning = tuning_of(2, "some.file");
  const LearntPath fetched{.call = ordinary(), .path = {.inputs = Inputs::fetched}};
  LearntPath announced = fetched;
  announced.call = ordinary(4 << 10);
  announced.path = {.inputs = Inputs::announced, .results = Results::own};
  const LearntPath rows[] = {fetched, announced};
  Learner forbidden(tuning, 2, /*can_fetch=*/false);
  CHECK(forbidden.adopt(rows) == 1);
  const Path first = tuning.path_for(ordinary(), kBytes, 2, false);
  CHECK(forbidden.choose(ordinary(), false) == first);
  Learner learner(tuning, 2, true);
  CHECK(learner.adopt(rows) == 0);
  CHECK(learner.choose(ordinary(), false).inputs == Inputs::fetched);
  const CallClass larger = ordinary(16 << 10);  // a similar size, too large for an announcement
  CHECK(learner.plan(larger).inputs != Inputs::announced);
}

TEST_CASE("an announced path from a file gives way where a rank does not announce") {
  const Tuning tuning = tuning_of(2, "some.file");
  Learner learner(tuning, 2, true);
  const CallClass call = ordinary(4 << 10);
  const LearntPath row{.call = call,
                       .path = {.inputs = Inputs::announced, .results = Results::own}};
  CHECK(learner.adopt(std::span(&row, 1)) == 0);
  REQUIRE(learner.plan(call).inputs == Inputs::announced);
  CHECK(learner.choose(call, true).inputs == Inputs::announced);
  CHECK(learner.choose(call, false).inputs == Inputs::staged);
  CHECK(learner.plan(call).inputs == Inputs::staged);
}

TEST_CASE("what is adopted is not tried, and serves sizes near it") {
  const Tuning tuning = tuning_of(2, "some.file");
  Learner learner(tuning, 2, true);
  const Path known{.inputs = Inputs::fetched, .results = Results::spread};
  const LearntPath row{.call = ordinary(), .path = known, .margin = 1.5};
  learner.adopt(std::span(&row, 1));
  for (const std::size_t bytes : {kBytes, kBytes / 2, kBytes * 2, kBytes * 64}) {
    CAPTURE(bytes);
    const Job job = make_calls(learner, 50, fetched_takes(5000, 1), ordinary(bytes));
    for (const Path& path : job.paths) CHECK(path == known);
  }
  const CallClass far = ordinary(kBytes / 64);
  CHECK(learner.choose(far, false) == tuning.path_for(far, kBytes / 64, 2, true));
}

TEST_CASE("a call too large to be announced takes the table's path, whatever came before it") {
  const Tuning tuning = tuning_of(2, "static");
  Learner learner(tuning, 2, true);
  const CallClass call = ordinary(kInlineInNode);  // the smallest of its class that just fits
  CHECK(learner.choose(call, true).inputs == Inputs::announced);
  const std::size_t larger = kInlineInNode + 4096;
  const Path expected = tuning.path_for(call, larger, 2, true);
  CHECK(expected.results == Results::own);
  CHECK(learner.choose(call, false) == expected);
}

TEST_CASE("static keeps to the table, and so does what TUTTI_ALGORITHMS says of a node") {
  for (const Tuning& tuning : {tuning_of(2, "static"), tuning_of(2, "learn", "own-sums=1")}) {
    Learner learner(tuning, 2, true);
    const Job job = make_calls(learner, 500, fetched_takes(1, 1000));
    const Path first = tuning.path_for(ordinary(), kBytes, 2, true);
    for (const Path& path : job.paths) CHECK(path == first);
  }
  CHECK(tuning_of(2, "learn", "exchange=halving").learns);
}

TEST_CASE("swapped slots are tried in one long trial, beside which others go on") {
  const CallClass call = ordinary(16 << 10);
  const Tuning tuning = tuning_of(2);
  for (const bool are_fast : {true, false}) {
    CAPTURE(are_fast);
    Learner learner(tuning, 2, true);
    int in_a_row = 0;
    int longest = 0;
    int with_swapped = 0;
    int fetched_before = 0;
    int first_trial = 0;
    Path last;
    for (int i = 0; i < 3000; ++i) {
      learner.plan(call);
      last = learner.choose(call, false);
      const bool swapped = last.inputs == Inputs::swapped;
      in_a_row = swapped ? in_a_row + 1 : 0;
      if (i < 1000) longest = std::max(longest, in_a_row);
      with_swapped += swapped ? 1 : 0;
      if (with_swapped == 0 && last.inputs == Inputs::fetched) ++fetched_before;
      const int first = are_fast ? 1500 : 2500;
      const int usual = are_fast && in_a_row > 20 ? 700 : first;
      const bool is_disturbed = in_a_row % 9 == 4;  // which does not end a trial
      learner.observe(!swapped ? 1000 : is_disturbed ? 20'000 : usual);
      if (swapped && in_a_row == with_swapped) first_trial = in_a_row;
      if (in_a_row > 38) break;
    }
    CHECK(fetched_before > 0);
    if (are_fast) CHECK(last.inputs == Inputs::swapped);
    if (are_fast) CHECK(first_trial > 38);  // 33 before five that count, then it is the best
    if (!are_fast) CHECK(longest < 8);
    if (!are_fast) CHECK(with_swapped < 16);
  }
}

TEST_CASE("in turn, every path is taken") {
  const Tuning tuning = tuning_of(3, "learn", "paths=in-turn");
  Learner learner(tuning, 3, true);
  const Job job = make_calls(learner, 60, fetched_takes(1, 1000));
  std::set<std::string> seen;
  for (const Path& path : job.paths) seen.insert(to_string(path));
  CHECK(seen.size() == 4 * possible_paths(ordinary(), 3, true).size());
}
