// SPDX-License-Identifier: Apache-2.0
// The ring of slots: where slots lie, and calls whose ranks are late in the middle of them, in
// rings that come round in every call.
#include "collectives/wait/slot_ring.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <doctest/doctest.h>
#include <span>
#include <string>
#include <thread>

#include "collectives/engine/engine.hpp"
#include "runtime/job/group.hpp"
#include "tests/support/standard_error.hpp"
#include "unit/threads.hpp"

using namespace tutti;
using namespace tutti::collectives;

namespace {

/// Checks what comes, and sleeps now and then, differently on every rank and in every call.
class SlowReader final : public Consumer {
 public:
  SlowReader(const std::vector<float>& expected, int rank, int call)
      : expected_(expected), turn_(rank * 7 + call * 3) {}

  void consume(std::size_t, std::size_t first, std::size_t count,
               const std::byte* reduced) override {
    if (std::memcmp(reduced, expected_.data() + first, count * sizeof(float)) != 0) ++wrong_;
    if (++turn_ % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
    if (turn_ % 31 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  [[nodiscard]] int wrong() const { return wrong_; }

 private:
  const std::vector<float>& expected_;
  int turn_;
  int wrong_ = 0;
};

/// A sum of ordinary memory for a consumer. Returns how many of its pieces were wrong.
int sum_slowly(Communicator& comm, const test::Summands& summands, int call) {
  const std::vector<float>& own = summands.inputs[static_cast<std::size_t>(comm.rank())];
  std::vector<float> output(own.size());
  const Segment segment{.input = reinterpret_cast<const std::byte*>(own.data()),
                        .output = reinterpret_cast<std::byte*>(output.data()),
                        .count = own.size(),
                        .dtype = DType::float32};
  SlowReader reader(summands.sum, comm.rank(), call);
  const auto describe = [] { return std::string("a slow sum"); };
  CHECK(comm.group()->engine().run({.kind = Kind::allreduce,
                                    .segments = {&segment, 1},
                                    .consumer = &reader,
                                    .describe = describe}));
  return reader.wrong();
}

/// Ranks that disagree move nothing, and go on.
bool disagrees(Communicator& comm) {
  const std::int64_t count = comm.rank() == 0 ? 4000 : 5000;
  std::vector<float> data(static_cast<std::size_t>(count), 1.0f);
  try {
    comm.allreduce(view(data.data(), {count}));
  } catch (const Error& error) {
    return error.code() == ErrorCode::mismatch;
  }
  return false;
}

constexpr std::size_t kChunk = 4096;

constexpr std::size_t kCounts[] = {30011, 1500, 9001, 3000, 16384, 2500, 20000};

Settings settings_with(const std::string& algorithms) {
  Settings settings;
  settings.chunk_bytes = kChunk;
  settings.timeout = std::chrono::seconds(60);
  settings.algorithms = algorithms;
  return settings;
}

void check_sums(int ranks, const std::string& algorithms,
                std::span<const std::size_t> counts = kCounts) {
  CAPTURE(ranks);
  CAPTURE(algorithms);
  const auto all = test::summands_of(ranks, counts);
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks({ranks}, settings_with(algorithms), [&](Communicator& comm) {
    int call = 0;
    for (const test::Summands& summands : all) {
      wrong += sum_slowly(comm, summands, ++call);
      if (call % 3 == 0 && comm.size() > 1 && !disagrees(comm)) ++wrong;
    }
  });
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
}

/// The elements of rank `from` for rank `to`, in a call.
float element(int call, int from, int to, std::size_t i) {
  return static_cast<float>((call * 131 + from * 17 + to * 5 + static_cast<int>(i % 1009)) % 4099);
}

/// Elements from one rank to another, which differ from pair to pair; those that a rank keeps, too.
std::size_t count_between(int from, int to) {
  return static_cast<std::size_t>(2003 + 3500 * ((from + 2 * to + 3) % 3));
}

/// Blocks of the kinds that some ranks give, or take, nothing of. Returns wrong elements.
int move_blocks(Communicator& comm, int call, const std::vector<std::pair<int, int>>& blocks) {
  std::vector<float> input;
  for (const auto& [from, to] : blocks) {
    if (from != comm.rank()) continue;
    for (std::size_t i = 0; i < count_between(from, to); ++i) {
      input.push_back(element(call, from, to, i));
    }
  }
  std::size_t wanted = 0;
  const auto is_wanted = [&](int to) { return to == comm.rank() || to == kEveryRank; };
  for (const auto& [from, to] : blocks) wanted += is_wanted(to) ? count_between(from, to) : 0;
  std::vector<float> output(wanted, -1.0f);
  BlockSegments segments(comm.rank(), reinterpret_cast<const std::byte*>(input.data()),
                         reinterpret_cast<std::byte*>(output.data()), DType::float32,
                         blocks.size());
  for (const auto& [from, to] : blocks) segments.add(from, to, count_between(from, to));
  const auto describe = [] { return std::string("blocks"); };
  CHECK(comm.group()->engine().run(
      {.kind = Kind::alltoall, .segments = segments.all(), .describe = describe}));
  int wrong = 0;
  std::size_t place = 0;
  for (const auto& [from, to] : blocks) {
    if (!is_wanted(to)) continue;
    for (std::size_t i = 0; i < count_between(from, to); ++i) {
      if (output[place++] != element(call, from, to, i)) ++wrong;
    }
  }
  return wrong;
}

/// All to all, from one to all, from all to one, from each to everyone, and from one to everyone.
std::vector<std::vector<std::pair<int, int>>> patterns(int ranks) {
  std::vector<std::vector<std::pair<int, int>>> all(5);
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) all[0].emplace_back(from, to);
    all[1].emplace_back(ranks - 1, from);
    all[2].emplace_back(from, 1);
    all[3].emplace_back(from, kEveryRank);
  }
  all[4].emplace_back(ranks - 1, kEveryRank);
  // Each to its neighbours, but for one rank: its blocks lie apart.
  for (int from = 0; from < ranks; ++from) all.back().emplace_back(from, (from + 1) % ranks);
  return all;
}

}  // namespace

TEST_CASE("slots of any sizes do not meet the last three before them") {
  SlotRing ring;
  ring.set_length(SlotRing::least_bytes(kChunk));
  struct Slot {
    std::size_t begin;
    std::size_t end;
  };
  std::vector<Slot> taken;
  unsigned random = 1;
  for (int i = 0; i < 2000; ++i) {
    random = random * 1664525u + 1013904223u;
    const std::size_t bytes = i % 7 == 0 ? kChunk : random % kChunk + 1;
    const std::size_t begin = ring.take(bytes);
    const Slot slot{begin, begin + bytes};
    CHECK(slot.end <= ring.length());
    CHECK(slot.begin % kLineBytes == 0);
    for (std::size_t back = 1; back < SlotRing::kLive && back <= taken.size(); ++back) {
      const Slot& before = taken[taken.size() - back];
      CHECK((slot.end <= before.begin || before.end <= slot.begin));
    }
    taken.push_back(slot);
  }
}

TEST_CASE("a swapped slot is written by the rank that has read it last") {
  std::vector<std::byte> arena(2 * SlotRing::kSwapped);
  ControlBlock control;
  NodeMemory memory;
  memory.peers = {{arena.data(), &control}};
  SlotRing main;
  main.set_length(SlotRing::kSwapped);
  SlotRing ring = SlotRing::swapped_behind(main, memory);
  CHECK(ring.most_ahead(SlotRing::kMostSwapped) == 5);
  CHECK(ring.may_be_early(SlotRing::kMostSwapped));
  CHECK_FALSE(ring.may_be_early(SlotRing::kMostSwapped + 1));
  std::size_t end = 0;
  std::size_t laps = 0;
  unsigned random = 1;
  for (int i = 0; i < 2000; ++i) {
    random = random * 1664525u + 1013904223u;
    const std::size_t bytes = i % 7 == 0 ? SlotRing::kMostSwapped : random % kChunk + 1;
    const std::size_t slot = ring.take(bytes);
    const std::size_t begin = SlotRing::offset_of(slot);
    if (begin < end) ++laps;
    end = begin + bytes;
    CHECK(begin % kLineBytes == 0);
    CHECK(begin >= main.length());
    CHECK(end <= main.length() + SlotRing::kSwapped);
    CHECK(SlotRing::is_of_other(slot) == (laps % 2 == 1));
    CHECK(ring.length_from(slot) == main.length() + SlotRing::kSwapped - begin);
  }
  CHECK(laps > 20);
}

TEST_CASE("a rank stages as far ahead as the ring has room") {
  SlotRing ring;
  ring.set_length(SlotRing::least_bytes(kChunk));
  CHECK(ring.most_ahead(kChunk) == 1);
  ring.set_length(128 * kChunk);
  CHECK(ring.most_ahead(kChunk) == 54);
}

TEST_CASE("a slot that is written early meets none that others may still read") {
  constexpr std::size_t kLength = 100 * kChunk;
  SlotRing ring;
  ring.set_length(kLength);
  CHECK(ring.may_be_early(kLength / 16 / kLineBytes * kLineBytes));
  CHECK_FALSE(ring.may_be_early(kLength / 16 + kLineBytes));
  for (std::size_t chunk = kLineBytes; chunk <= 12 * kChunk; chunk += 5 * kLineBytes) {
    CAPTURE(chunk);
    for (std::size_t early = kLineBytes; ring.may_be_early(early); early *= 2) {
      std::vector<std::size_t> taken;
      const std::size_t live = 2 * ring.most_ahead(chunk) + 2;
      for (std::size_t i = 0; i < live; ++i) taken.push_back(ring.take(chunk));
      const std::size_t place = ring.take(early);
      const auto meets = [&](std::size_t slot) {
        return place < slot + chunk && slot < place + early;
      };
      CHECK(std::none_of(taken.begin(), taken.end(), meets));
    }
  }
}

TEST_CASE("slots are written again when all ranks have read them, however late they are") {
  for (const int ranks : {2, 3, 5}) {
    if (test::kFewCases && ranks == 5) continue;
    for (const char* results : {"own", "spread"}) {
      for (const char* ring : {"ring=1", "ring=30K", "ring=4M"}) {
        check_sums(ranks, std::string("inputs=staged,streamed-slots=1G,ring-chunk=4K,results=") +
                              results + "," + ring);
      }
    }
  }
}

TEST_CASE("where slots cannot be swapped, rank 0 says so") {
  Settings settings;
  settings.algorithms = "inputs=swapped";
  const auto written_with = [&](const std::vector<int>& nodes) {
    return test::written_by([&] {
      const auto outcomes = test::as_ranks(nodes, settings, [](Communicator& comm) {
        std::vector<float> data(5000, 1.0f);
        comm.allreduce(view(data.data(), {5000}));
      });
      CHECK(test::all_returned(outcomes));
    });
  };
  CHECK(written_with({2}).empty());
  const std::string text =
      "warning: TUTTI_ALGORITHMS=inputs=swapped: slots are swapped by two "
      "ranks on one node; inputs are staged\n";
  for (const std::vector<int>& nodes : {std::vector{3}, std::vector{2, 2}, std::vector{1}}) {
    const std::string written = written_with(nodes);
    CAPTURE(written);
    CHECK(written.find(text) != std::string::npos);
    CHECK(std::count(written.begin(), written.end(), '\n') == 1);
  }
}

TEST_CASE("slots are swapped again and again, however late the ranks are") {
  // The first is more than the rings hold, the next ones end at different places in them.
  constexpr std::size_t kSizes[] = {200003, 30011, 1500, 25000, 70001, 3000, 16384};
  for (const char* ring : {"ring-chunk=4K", "ring=1,ring-chunk=832"}) {
    check_sums(2, std::string("inputs=swapped,results=own,") + ring, kSizes);
  }
}

namespace {

void check_blocks(int ranks, const std::string& algorithms, int rounds) {
  CAPTURE(ranks);
  CAPTURE(algorithms);
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks({ranks}, settings_with(algorithms), [&](Communicator& comm) {
    for (int call = 0; call < rounds; ++call) {
      for (const auto& blocks : patterns(ranks)) wrong += move_blocks(comm, call, blocks);
    }
  });
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("blocks move through rings that come round in every call") {
  for (const int ranks : {2, 3, 5}) {
    for (const char* ring : {"ring=1", "ring=70K", "ring=4M"}) {
      check_blocks(ranks, std::string("inputs=staged,results=own,ring-chunk=4K,") + ring, 6);
    }
  }
  check_blocks(2, "inputs=swapped,results=own,ring-chunk=4K", 24);
}
