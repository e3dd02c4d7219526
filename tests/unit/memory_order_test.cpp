// SPDX-License-Identifier: Apache-2.0
// The pairs of atomics of "Who publishes what to whom" (collectives/node/README.md) as litmus
// tests: each with the library's own structures and orders of memory, without the engine around
// them. A pair that is too weak is seen by ThreadSanitizer everywhere, and by the values on
// processors that reorder, such as Arm's. x86-64, also under qemu, hides most of it from the
// values.
#include <array>
#include <atomic>
#include <cstring>
#include <doctest/doctest.h>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tutti/key.hpp"

#include "collectives/wait/failure.hpp"
#include "collectives/wait/node_memory.hpp"
#include "unit/threads.hpp"

namespace {

using tutti::collectives::AnnounceLine;
using tutti::collectives::ControlBlock;
using tutti::collectives::RecordBook;

constexpr std::uint64_t kRounds = test::kFewRounds ? 500 : 3000;
constexpr int kRanks = 3;

/// The control blocks of all ranks, as the arenas of a node have them.
struct Node {
  std::vector<std::unique_ptr<ControlBlock>> blocks;
  std::atomic<int> wrong{0};

  Node() {
    for (int rank = 0; rank < kRanks; ++rank) blocks.push_back(std::make_unique<ControlBlock>());
  }
  ControlBlock& operator[](int rank) { return *blocks[static_cast<std::size_t>(rank)]; }
  void expect(bool holds) {
    if (!holds) wrong.fetch_add(1, std::memory_order_relaxed);
  }
  /// Runs the body as every rank. A test is a count of what was wrong: checks are not for threads.
  int run(const std::function<void(int rank)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
    return wrong.load();
  }
};

void wait_until(const std::function<bool()>& holds) {
  while (!holds()) std::this_thread::yield();
}

/// Does some work between two accesses, which differs from time to time, so that ranks meet in many
/// ways.
void dawdle(std::uint64_t round, int rank) {
  const std::uint64_t turns = (round * 7 + static_cast<std::uint64_t>(rank) * 13) % 29;
  for (std::uint64_t i = 0; i < turns; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
}

std::uint64_t mark(std::uint64_t round, int rank) {
  return round * 1000003 + static_cast<std::uint64_t>(rank);
}

}  // namespace

TEST_CASE("an announcement is read whole, and its line is not written while it is read") {
  Node node;
  const auto announce = [&](int rank, std::uint64_t round) {
    AnnounceLine& line = node[rank].announce[round % 2];
    line.signature.keys = mark(round, rank);
    line.directory.only.input = mark(round, rank) + 1;
    for (std::size_t at = 0; at < 4 * sizeof(round); at += sizeof(round)) {
      std::memcpy(line.payload + at, &round, sizeof round);
    }
    line.sequence.store(round, std::memory_order_release);
  };
  const auto read = [&](int rank, std::uint64_t round) {
    const AnnounceLine& line = node[rank].announce[round % 2];
    wait_until([&] { return line.sequence.load(std::memory_order_acquire) == round; });
    node.expect(line.signature.keys == mark(round, rank));
    node.expect(line.directory.only.input == mark(round, rank) + 1);
    for (std::size_t at = 0; at < 4 * sizeof(round); at += sizeof(round)) {
      node.expect(std::memcmp(line.payload + at, &round, sizeof round) == 0);
    }
  };
  CHECK(node.run([&](int rank) {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      announce(rank, round);
      dawdle(round, rank);
      for (int peer = 0; peer < kRanks; ++peer) read(peer, round);
    }
  }) == 0);
}

TEST_CASE("what a rank has written before its step is seen through the step of another") {
  // Rank 0 passes on that all others have done their step: their writes must be visible with it,
  // although only rank 0 has looked at their lines.
  Node node;
  std::array<std::uint64_t, kRanks> data{};
  CHECK(node.run([&](int rank) {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      data[static_cast<std::size_t>(rank)] = mark(round, rank);
      node[rank].step.store(2 * round, std::memory_order_release);
      const auto& progress = node[0].group_step;
      if (rank == 0) {
        for (int peer = 1; peer < kRanks; ++peer) {
          wait_until([&] { return node[peer].step.load(std::memory_order_acquire) >= 2 * round; });
        }
        node[0].group_step.store(2 * round, std::memory_order_release);
      }
      wait_until([&] { return progress.load(std::memory_order_acquire) >= 2 * round; });
      for (int peer = 0; peer < kRanks; ++peer) {
        node.expect(data[static_cast<std::size_t>(peer)] == mark(round, peer));
      }
      node[rank].step.store(2 * round + 1, std::memory_order_release);  // this rank has read
      for (int peer = 0; peer < kRanks; ++peer) {
        wait_until([&] { return node[peer].step.load(std::memory_order_acquire) > 2 * round; });
      }
    }
  }) == 0);
}

TEST_CASE("memory is not given back before the others have read it") {
  // A read must not move behind the increment that says it is over.
  Node node;
  std::uint64_t data = 0;
  CHECK(node.run([&](int rank) {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      const auto readers = static_cast<std::uint32_t>(round) * (kRanks - 1);
      if (rank == 0) {
        data = mark(round, 0);
        node[0].step.store(round, std::memory_order_release);
        dawdle(round, rank);
        wait_until([&] { return node[0].departed.load(std::memory_order_acquire) == readers; });
        data = 0;
        continue;
      }
      wait_until([&] { return node[0].step.load(std::memory_order_acquire) >= round; });
      node.expect(data == mark(round, 0));
      node[0].departed.fetch_add(1, std::memory_order_release);
    }
  }) == 0);
}

TEST_CASE("the first of several failures is told to all, with its own text") {
  for (std::uint64_t round = 0; round < kRounds / 50; ++round) {
    Node node;
    ControlBlock& first = node[0];
    REQUIRE(node.run([&](int rank) {
      dawdle(round, rank);
      const std::string text = "rank " + std::to_string(rank);
      std::memcpy(node[rank].failure_text, text.c_str(), text.size() + 1);
      std::uint32_t healthy = tutti::collectives::kHealthy;
      first.failure.compare_exchange_strong(healthy, static_cast<std::uint32_t>(rank) + 1);
      const int by = static_cast<int>(first.failure.load(std::memory_order_acquire)) - 1;
      node.expect(node[by].failure_text == "rank " + std::to_string(by));
    }) == 0);
  }
}

TEST_CASE("a rank that is killed while it raises a failure keeps nobody from raising another") {
  Node node;
  tutti::collectives::NodeMemory memory;
  for (int rank = 0; rank < 2; ++rank) memory.peers.push_back({nullptr, &node[rank]});
  node[1].raises = 1;  // and has not come further
  memory.local_rank = 0;
  CHECK(tutti::collectives::raise_in_node(memory, tutti::ErrorCode::timeout, "is late", true));
  CHECK(memory.first().failure == 1);
  CHECK(std::string(node[0].failure_text) == "is late");
  memory.local_rank = 1;
  CHECK_FALSE(
      tutti::collectives::raise_in_node(memory, tutti::ErrorCode::timeout, "is late, too", true));
  CHECK(std::string(node[0].failure_text) == "is late");
}

TEST_CASE("a record that is read while its rank goes on is of one call, or of none") {
  RecordBook book;
  std::atomic<bool> is_over{false};
  std::atomic<int> wrong{0};
  std::atomic<int> read{0};
  // The oldest records are overwritten first; the newest is being written.
  const auto observe = [&] {
    std::array<char, RecordBook::kWords> text{};
    for (std::uint64_t age = 0; !is_over.load(std::memory_order_relaxed); age = (age + 51) % 256) {
      const std::uint64_t newest = book.newest();
      if (newest <= age) continue;
      const std::uint64_t sequence = newest - age;
      const std::size_t length = book.describe(sequence, text);
      if (length == 0) continue;
      const std::string said(text.data(), length);
      const std::string expected = "call " + std::to_string(sequence) + ", push of key " +
                                   std::to_string(sequence * 7) + " and " +
                                   std::to_string(sequence % 5 + 1) + " more, " +
                                   std::to_string(sequence * 3) + " bytes: ";
      if (!said.starts_with(expected)) wrong.fetch_add(1, std::memory_order_relaxed);
      read.fetch_add(1, std::memory_order_relaxed);
    }
  };
  std::thread one(observe);
  std::thread other(observe);
  for (std::uint64_t sequence = 1; sequence <= 100 * kRounds || read < 100; ++sequence) {
    const tutti::Key key(static_cast<std::int64_t>(sequence * 7));
    book.begin({.sequence = sequence,
                .verb = tutti::collectives::Verb::push,
                .keys = static_cast<std::uint32_t>(sequence % 5 + 2),
                .first_key = &key,
                .digest = 0,
                .bytes = sequence * 3,
                .begun = 0});
    if (sequence % 64 == 0) std::this_thread::yield();
  }
  is_over = true;
  one.join();
  other.join();
  CHECK(wrong.load() == 0);
}
