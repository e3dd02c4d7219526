// SPDX-License-Identifier: Apache-2.0
// The ring of slots: where slots lie, and calls whose ranks are late in the middle of them, in
// rings that come round in every call.
#include "collectives/wait/slot_ring.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <doctest/doctest.h>
#include <string>
#include <thread>

#include "collectives/engine/engine.hpp"
#include "runtime/job/group.hpp"
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

void check_sums(int ranks, const std::string& algorithms) {
  CAPTURE(ranks);
  CAPTURE(algorithms);
  constexpr std::size_t kCounts[] = {30011, 1500, 9001, 3000, 16384, 2500, 20000};
  const auto all = test::summands_of(ranks, kCounts);
  Settings settings;
  settings.chunk_bytes = kChunk;
  settings.timeout = std::chrono::seconds(60);
  settings.algorithms = algorithms;
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks({ranks}, settings, [&](Communicator& comm) {
    int call = 0;
    for (const test::Summands& summands : all) {
      wrong += sum_slowly(comm, summands, ++call);
      if (call % 3 == 0 && comm.size() > 1 && !disagrees(comm)) ++wrong;
    }
  });
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
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

TEST_CASE("a rank stages as far ahead as the ring has room") {
  SlotRing ring;
  ring.set_length(SlotRing::least_bytes(kChunk));
  CHECK(ring.most_ahead(kChunk) == 1);
  ring.set_length(128 * kChunk);
  CHECK(ring.most_ahead(kChunk) == 62);
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
