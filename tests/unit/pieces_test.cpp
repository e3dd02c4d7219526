// SPDX-License-Identifier: Apache-2.0
// Data between nodes, with the handshakes or in messages of several pieces: the choices that may be
// tried, learning, and equal choices and bits on all nodes.
#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <doctest/doctest.h>
#include <random>
#include <set>

#include "collectives/choice/call_time.hpp"
#include "collectives/choice/learner.hpp"
#include "unit/threads.hpp"

using namespace tutti;
using namespace tutti::collectives;

namespace {

constexpr CacheSizes kCaches{.level1 = 32 << 10, .last_level = 32 << 20};

Settings settings_with(const std::string& tuning, const std::string& algorithms = "") {
  Settings settings;
  settings.tuning = tuning;
  settings.algorithms = algorithms;
  return settings;
}

Tuning tuning_of(const std::vector<int>& nodes, const Settings& settings = {}) {
  return Tuning::choose(Topology::consecutive(0, nodes), settings, kCaches);
}

CallClass between_nodes(std::size_t bytes, bool may_be_inline = false) {
  return {.kind = Kind::allreduce,
          .between_nodes = true,
          .may_be_inline = may_be_inline,
          .size = static_cast<std::uint8_t>(std::bit_width(bytes - 1))};
}

/// The pieces of each of so many calls. Messages of 1, 2, 4 and 8 pieces take these times.
std::vector<int> calls_of(Learner& learner, int calls, std::size_t bytes,
                          const std::array<std::uint32_t, 4>& times) {
  std::vector<int> pieces;
  for (int i = 0; i < calls; ++i) {
    const Path path = learner.choose(between_nodes(bytes), /*announced=*/false);
    pieces.push_back(path.pieces);
    learner.observe(times[static_cast<std::size_t>(std::countr_zero(unsigned{path.pieces}))]);
  }
  return pieces;
}

}  // namespace

TEST_CASE("messages may have several pieces while they, and the scratch, stay small") {
  CHECK(tuning_of({2}).most_pieces == 1);
  CHECK(tuning_of({1, 1}).most_pieces == 8);
  CHECK(tuning_of({4, 4}).most_pieces == 8);  // chunks of 256 KiB to 2 MiB
  CHECK(tuning_of({4, 4, 4, 4}).most_pieces == 4);
  CHECK(tuning_of(std::vector<int>(8, 8)).most_pieces == 1);
  CHECK(tuning_of({1, 1}, settings_with("static")).most_pieces == 1);
  CHECK(tuning_of({1, 1}, settings_with("static", "pieces=4")).most_pieces == 4);
  Settings asked;
  asked.piece_bytes = 64 << 10;
  CHECK(tuning_of({1, 1}, asked).most_pieces == 1);
}

TEST_CASE("messages of several pieces leave as many bytes under way, and at least two chunks") {
  const Tuning tuning = tuning_of({1, 1});
  const auto in_flight = [&](int pieces) {
    return tuning.chunks_in_flight_of({.pieces = static_cast<std::uint8_t>(pieces)});
  };
  CHECK(in_flight(1) == 16);
  CHECK(in_flight(4) == 4);
  CHECK(in_flight(8) == 2);
  CHECK(
      tuning_of({1, 1}, settings_with("learn", "in-flight=3")).chunks_in_flight_of({.pieces = 8}) ==
      2);
  CHECK(
      tuning_of({1, 1}, settings_with("learn", "in-flight=1")).chunks_in_flight_of({.pieces = 8}) ==
      1);
  CHECK(tuning.chunk_bytes_of({.pieces = 4}) == 4 * tuning.chunk_bytes);
}

TEST_CASE("the number of pieces that takes the least time is learnt") {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  const Tuning tuning = tuning_of({1, 1});
  for (const auto& [times, best] :
       {std::pair{std::array<std::uint32_t, 4>{1000, 800, 600, 900}, 4},
        std::pair{std::array<std::uint32_t, 4>{1000, 1500, 1400, 1600}, 1},
        std::pair{std::array<std::uint32_t, 4>{1000, 1100, 900, 500}, 8}}) {
    Learner learner(tuning, 1, false);
    const auto pieces = calls_of(learner, 400, kBytes, times);
    CHECK(pieces.front() == 1);
    CHECK(pieces.back() == best);
    CHECK_FALSE(learner.is_learning());
    REQUIRE(learner.learnt().size() == 1);
    CHECK_FALSE(is_in_node(learner.learnt().front()));
    const std::string text = to_string(learner.learnt().front());
    CHECK(text.starts_with("learnt: allreduce between nodes, up to 4194304 bytes: pieces=" +
                           std::to_string(best) + ": "));
  }
}

TEST_CASE("no more pieces are tried than make one chunk of all") {
  const Tuning tuning = tuning_of({1, 1});  // chunks of 64 KiB
  const auto tried = [&](std::size_t bytes) {
    Learner learner(tuning, 1, false);
    const auto pieces = calls_of(learner, 400, bytes, {1000, 990, 980, 970});
    return std::set<int>(pieces.begin(), pieces.end());
  };
  CHECK(tried(64 << 10) == std::set<int>{1});
  CHECK(tried(65 << 10) == std::set<int>{1, 2});
  CHECK(tried(128 << 10) == std::set<int>{1, 2});
  CHECK(tried(256 << 10) == std::set<int>{1, 2, 4});
  CHECK(tried(8 << 20) == std::set<int>{1, 2, 4, 8});
}

TEST_CASE("whether a sum goes with the handshakes is learnt") {
  const Tuning tuning = tuning_of({1, 1, 1});
  for (const std::size_t bytes : {std::size_t{9} << 10, std::size_t{16} << 10,
                                  std::size_t{17} << 10, std::size_t{128} << 10}) {
    for (const bool with_handshakes : {false, true}) {
      CAPTURE(bytes);
      CAPTURE(with_handshakes);
      const CallClass call = between_nodes(bytes, /*may_be_inline=*/true);
      Learner learner(tuning, 1, false);
      const bool is_first = learner.plan(call).inputs == Inputs::announced;
      CHECK(is_first == (bytes <= std::size_t{16} << 10));
      Path last;
      for (int i = 0; i < 300; ++i) {
        const bool announced = learner.plan(call).inputs == Inputs::announced;
        last = learner.choose(call, announced);
        CHECK((last.inputs == Inputs::announced) == announced);
        learner.observe(announced == with_handshakes ? 500 : 1000);
      }
      CHECK((last.inputs == Inputs::announced) == with_handshakes);
      CHECK_FALSE(learner.is_learning());
      REQUIRE(learner.learnt().size() == 1);
      const std::string text = to_string(learner.learnt().front());
      CHECK((text.find(" bytes: with the handshakes: ") != std::string::npos) == with_handshakes);
    }
  }
}

TEST_CASE("sums that may not go with the handshakes never do") {
  const Tuning tuning = tuning_of({1, 1});
  Learner learner(tuning, 1, false);
  for (int i = 0; i < 100; ++i) {
    CHECK(learner.choose(between_nodes(16 << 10), false).inputs == Inputs::staged);
    learner.observe(1000);
  }
}

TEST_CASE("what TUTTI_ALGORITHMS says of pieces holds, and is not learnt") {
  const Tuning tuning = tuning_of({1, 1}, settings_with("learn", "pieces=2"));
  Learner learner(tuning, 1, false);
  const auto pieces = calls_of(learner, 300, 8 << 20, {1000, 2000, 500, 500});
  CHECK(std::set<int>(pieces.begin(), pieces.end()) == std::set<int>{2});
}

TEST_CASE("the time of a call on several nodes is the longest, or not known") {
  CHECK(longest_of(3, 5) == 5);
  CHECK(longest_of(5, 3) == 5);
  CHECK(longest_of(0, 3) == 0);
  CHECK(longest_of(3, 0) == 0);
}

namespace {

/// The learnt choices of every rank after each call.
class Histories {
 public:
  explicit Histories(int ranks) : of_(static_cast<std::size_t>(ranks)) {}

  void note(const Communicator& comm) {
    std::string text = comm.is_learning() ? "learning" : "settled";
    for (const std::string& line : comm.algorithms()) {
      if (line.starts_with("learnt: ")) text += "; " + line;
    }
    of_[static_cast<std::size_t>(comm.rank())].push_back(text);
  }
  [[nodiscard]] bool are_alike() const {
    return std::all_of(of_.begin(), of_.end(), [&](const auto& one) { return one == of_[0]; });
  }
  [[nodiscard]] const std::string& last() const { return of_[0].back(); }

 private:
  std::vector<std::vector<std::string>> of_;
};

}  // namespace

TEST_CASE("all nodes learn alike, however late a rank comes") {
  const std::vector<std::vector<int>> layouts = {
      {1, 1}, {2, 2}, {1, 3}, {1, 1, 1}, {2, 1, 2, 1, 1}, std::vector<int>(9, 1)};
  for (const auto& layout : layouts) {
    for (const std::string handshakes : {"handshakes=direct", "handshakes=doubling"}) {
      CAPTURE(layout.size());
      CAPTURE(handshakes);
      const std::int64_t count = layout.size() % 2 == 0 ? 50'000 : 12'000;
      Histories histories(test::size_of_job(layout));
      std::atomic<int> wrong{0};
      const auto outcomes =
          test::as_ranks(layout, settings_with("at-once", handshakes), [&](Communicator& comm) {
            std::mt19937 random(static_cast<unsigned>(comm.rank()));
            for (int call = 0; call < (test::kFewRounds ? 15 : 60); ++call) {
              if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
              Tensor data = Tensor::full({count}, 1);
              if (call % 7 == 3) comm.barrier();
              comm.allreduce(data);
              if (data.value(0) != comm.size()) ++wrong;
              if (data.value(count - 1) != comm.size()) ++wrong;
              histories.note(comm);
            }
          });
      CHECK(test::all_returned(outcomes));
      CHECK(wrong == 0);
      CHECK(histories.are_alike());
      if (!test::kFewRounds && layout.size() == 2) {
        CHECK(histories.last().find("settled; learnt: allreduce between nodes") == 0);
      }
    }
  }
}

TEST_CASE("a mismatch between nodes leaves what all have learnt alike") {
  // Both go in pieces; one may go with the handshakes; both may, with one message and with two.
  for (const auto& counts : {std::pair{40'000, 50'000}, std::pair{40'000, 20'000},
                             std::pair{12'000, 40'000}, std::pair{12'000, 24'000}}) {
    const int usual = counts.first;
    const int other = counts.second;
    CAPTURE(usual);
    CAPTURE(other);
    Histories histories(3);
    std::atomic<int> refused{0};
    const auto outcomes =
        test::as_ranks({1, 1, 1}, settings_with("at-once"), [&](Communicator& comm) {
          for (int call = 0; call < 40; ++call) {
            const bool differs = call % 5 == 2 && comm.rank() == 1;
            Tensor data = Tensor::full({differs ? other : usual}, 1);
            try {
              comm.allreduce(data);
            } catch (const Error& error) {
              if (error.code() == ErrorCode::mismatch && error.recoverable()) ++refused;
            }
            histories.note(comm);
          }
        });
    CHECK(test::all_returned(outcomes));
    CHECK(refused == 3 * 8);
    CHECK(histories.are_alike());
  }
}

namespace {

/// A random tensor of float32 or bfloat16.
Tensor random_tensor(std::int64_t count, DType dtype, unsigned seed) {
  const auto size = static_cast<std::size_t>(count);
  if (dtype == DType::float32) return Tensor::from(test::random_values(size, seed));
  const auto values = test::random_bfloat16(size, seed);
  Tensor tensor = Tensor::empty({count}, dtype);
  std::memcpy(tensor.bytes(), values.data(), tensor.size_bytes());
  return tensor;
}

enum class Memory { ordinary, shared, shared_in_place };

/// The bits of several collectives, one after the other, as rank 0 gets them.
test::Bits results_of(const std::vector<int>& layout, const Settings& settings, DType dtype,
                      int turns, Memory memory = Memory::ordinary, std::int64_t block = 9'001) {
  const std::int64_t ranks = test::size_of_job(layout);
  test::Bits bits;
  std::atomic<int> different{0};
  const auto outcomes = test::as_ranks(layout, settings, [&](Communicator& comm) {
    const Tensor values = random_tensor(ranks * block, dtype, static_cast<unsigned>(comm.rank()));
    const auto make = [&](std::int64_t count) {
      return memory == Memory::ordinary ? Tensor::zeros({count}, dtype)
                                        : comm.allocate({count}, dtype);
    };
    Tensor input = make(ranks * block);
    Tensor other = make(ranks * block);
    Tensor share = make(block);
    Tensor all = make(ranks * block);
    Tensor& sum = memory == Memory::shared_in_place ? input : other;
    test::Bits first;
    for (int turn = 0; turn < turns; ++turn) {
      test::Bits found;
      const auto keep = [&](const Tensor& tensor) { test::append(found, tensor); };
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::max}) {
        std::memcpy(input.bytes(), values.bytes(), values.size_bytes());
        other.fill(0);
        comm.allreduce(input, sum, op);
        keep(sum);
      }
      std::memcpy(input.bytes(), values.bytes(), values.size_bytes());
      comm.reduce_scatter(input, share);
      comm.allgather(share, all);
      keep(all);
      comm.broadcast(all, static_cast<int>(ranks) - 1);
      keep(all);
      if (turn == 0) first = found;
      if (found != first) ++different;
    }
    if (comm.rank() == 0) bits = first;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(different == 0);
  return bits;
}

}  // namespace

TEST_CASE("no bit depends on whether a sum goes with the handshakes, in how many messages") {
  Settings in_turn = settings_with("learn", "paths=in-turn");
  const std::vector<std::vector<int>> layouts = {
      {1, 1}, {1, 1, 1}, {2, 3}, std::vector<int>(8, 1), std::vector<int>(9, 1), {2, 1, 2, 1, 1}};
  for (const auto& layout : layouts) {
    if (test::kFewCases && layout.size() > 5) continue;
    for (const bool reproducible : {false, true}) {
      for (const std::int64_t bytes : {12'000, 70'000, 131'000}) {
        if (test::kFewCases && reproducible != (bytes == 70'000)) continue;
        CAPTURE(layout.size());
        CAPTURE(reproducible);
        CAPTURE(bytes);
        const std::int64_t block = bytes / 4 / test::size_of_job(layout);
        Settings one = settings_with("static", "inline-shared=8K");
        one.reproducible = in_turn.reproducible = reproducible;
        const auto expected = results_of(layout, one, DType::float32, 1, Memory::ordinary, block);
        for (const std::string handshakes : {"direct", "doubling"}) {
          in_turn.algorithms = "paths=in-turn,handshakes=" + handshakes;
          for (const Memory memory : {Memory::ordinary, Memory::shared_in_place}) {
            CHECK((results_of(layout, in_turn, DType::float32, 3, memory, block) == expected));
          }
        }
      }
    }
  }
}

TEST_CASE("in a node, too, payloads may be larger than the scratch of the ranks that sum them") {
  Settings announced = settings_with("static", "inline-shared=128K,inline-private=128K");
  const Settings usual = settings_with("static");
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const auto expected = results_of({3}, usual, dtype, 1);
    CHECK((results_of({3}, announced, dtype, 1) == expected));
    CHECK((results_of({3}, announced, dtype, 1, Memory::shared_in_place) == expected));
  }
}

TEST_CASE("no number of pieces changes a bit, wherever the data is") {
  Settings in_turn = settings_with("learn", "paths=in-turn");
  in_turn.piece_bytes = 4096;
  Settings one = settings_with("static");
  one.piece_bytes = 4096;
  for (const auto& layout : {std::vector{1, 1}, std::vector{1, 1, 1}, std::vector{2, 3}}) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      CAPTURE(layout.size());
      const auto expected = results_of(layout, one, dtype, 1);
      for (const Memory memory : {Memory::ordinary, Memory::shared, Memory::shared_in_place}) {
        CHECK((results_of(layout, in_turn, dtype, test::kFewRounds ? 4 : 8, memory) == expected));
      }
      one.algorithms = "exchange=halving";
      CHECK((results_of(layout, one, dtype, 1) == expected));
      one.algorithms.clear();
    }
  }
}
