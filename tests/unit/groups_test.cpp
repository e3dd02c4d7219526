// SPDX-License-Identifier: Apache-2.0
// Groups of some of the ranks, with threads as ranks.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <doctest/doctest.h>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "tutti/kvstore.hpp"

#include "runtime/observe/trace.hpp"
#include "support/array_memory.hpp"
#include "unit/threads.hpp"

using namespace tutti;

namespace {

constexpr int kRows = 2;
constexpr int kColumns = 4;
constexpr int kRanks = kRows * kColumns;
const std::vector<std::vector<int>> kLayouts{
    {8}, {4, 4}, {2, 2, 2, 2}, {1, 1, 1, 1, 1, 1, 1, 1}, {3, 5}, {1, 6, 1}};

Settings small_pieces(double seconds = 60) {
  Settings settings;
  settings.chunk_bytes = 4096;
  settings.piece_bytes = 4096;
  settings.timeout = std::chrono::duration<double>(seconds);
  settings.reproducible = true;
  settings.log = LogLevel::quiet;
  return settings;
}

/// Runs `body` as every rank, in each layout; it counts wrong results.
void in_layouts(const std::vector<std::vector<int>>& layouts,
                const std::function<void(Communicator&, std::atomic<int>& wrong)>& body) {
  for (const auto& nodes : layouts) {
    std::atomic<int> wrong{0};
    const auto outcomes =
        test::as_ranks(nodes, small_pieces(), [&](Communicator& world) { body(world, wrong); });
    CHECK(test::all_returned(outcomes));
    CHECK(wrong == 0);
  }
}

/// The canonical sum over these ranks of the job, in this order.
std::vector<float> sum_over(const std::vector<int>& ranks, std::size_t count) {
  std::vector<std::vector<float>> inputs;
  for (const int rank : ranks) inputs.push_back(test::values_of(rank, count));
  return test::expected_sum(inputs);
}

std::vector<int> row_of(int rank) {
  std::vector<int> ranks(kColumns);
  std::iota(ranks.begin(), ranks.end(), rank / kColumns * kColumns);
  return ranks;
}

std::vector<int> column_of(int rank) {
  std::vector<int> ranks;
  for (int row = 0; row < kRows; ++row) ranks.push_back(row * kColumns + rank % kColumns);
  return ranks;
}

/// True if an allreduce over the group gives the bits of a job of these ranks.
bool sums(Communicator& group, Communicator& memory, const std::vector<int>& ranks,
          std::size_t count, bool shared) {
  const std::vector<float> own = test::values_of(memory.rank(), count);
  const Shape shape{static_cast<std::int64_t>(count)};
  Tensor tensor = shared ? memory.allocate(shape) : Tensor::empty(shape);
  std::ranges::copy(own, tensor.values<float>().begin());
  group.allreduce(tensor);
  return test::same_bits(tensor.values<float>(), sum_over(ranks, count));
}

bool says(const Error& error, ErrorCode code, const std::vector<std::string>& words) {
  const std::string text = error.what();
  const bool all = std::ranges::all_of(
      words, [&](const std::string& word) { return text.find(word) != std::string::npos; });
  if (!all || error.code() != code) MESSAGE("the error says: ", text);
  return all && error.code() == code;
}

template <class Body>
bool throws(Body body, ErrorCode code, const std::vector<std::string>& words) {
  try {
    body();
  } catch (const Error& error) {
    return says(error, code, words);
  }
  return false;
}

}  // namespace

TEST_CASE("rows and columns of a grid sum with the bits of a job of their ranks") {
  in_layouts(kLayouts, [&](Communicator& world, std::atomic<int>& wrong) {
    const int rank = world.rank();
    Communicator row = world.split(rank / kColumns);
    Communicator column = world.split(rank % kColumns);
    if (row.size() != kColumns || row.rank() != rank % kColumns) ++wrong;
    if (column.size() != kRows || column.rank() != rank / kColumns) ++wrong;
    if (row.job_rank() != rank || world.job_rank() != rank) ++wrong;
    for (const std::size_t count : {0u, 1u, 6u, 257u, 5003u, 40001u}) {
      for (const bool shared : {true, false, rank % 3 == 0}) {
        if (!sums(row, world, row_of(rank), count, shared)) ++wrong;
        if (!sums(column, world, column_of(rank), count, shared)) ++wrong;
      }
    }
  });
}

TEST_CASE("random calls of rows and columns in turn, with delays, are right and end") {
  const int calls = test::kFewRounds ? 200 : 10'000;
  const std::vector<std::size_t> counts{0, 1, 5, 100, 1500};
  in_layouts({{8}, {4, 4}, {3, 5}}, [&](Communicator& world, std::atomic<int>& wrong) {
    const int rank = world.rank();
    Communicator row = world.split(rank / kColumns);
    Communicator column = world.split(rank % kColumns);
    std::vector<std::vector<float>> of_row;
    std::vector<std::vector<float>> of_column;
    for (const std::size_t count : counts) {
      of_row.push_back(sum_over(row_of(rank), count));
      of_column.push_back(sum_over(column_of(rank), count));
    }
    std::mt19937 common(17);                            // chooses the callers
    std::mt19937 own(static_cast<unsigned>(rank) + 1);  // chooses the times
    Tensor tensor = world.allocate({1500});
    for (int call = 0; call < calls / 3; ++call) {
      const std::size_t which = common() % counts.size();
      const bool is_row = common() % 2 == 0;
      if (own() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 200));
      const std::span<float> values = tensor.values<float>().first(counts[which]);
      std::ranges::copy(test::values_of(rank, counts[which]), values.begin());
      const Shape shape{static_cast<std::int64_t>(counts[which])};
      (is_row ? row : column).allreduce(TensorView(tensor.bytes(), shape, DType::float32));
      if (!test::same_bits(values, (is_row ? of_row : of_column)[which])) ++wrong;
    }
  });
}

TEST_CASE("the key orders a group's ranks, and the order of summation with them") {
  in_layouts(kLayouts, [&](Communicator& world, std::atomic<int>& wrong) {
    Communicator reversed = world.split(7, -world.rank());
    if (reversed.rank() != kRanks - 1 - world.rank()) ++wrong;
    if (reversed.job_rank() != world.rank()) ++wrong;
    std::vector<int> ranks(kRanks);
    std::iota(ranks.rbegin(), ranks.rend(), 0);
    for (const std::size_t count : {3u, 1000u, 20000u}) {
      if (!sums(reversed, world, ranks, count, count == 1000u)) ++wrong;
    }
    Tensor all = Tensor::empty({kRanks}, DType::int32);
    Tensor mine = Tensor::empty({1}, DType::int32);
    mine.values<std::int32_t>()[0] = world.rank();
    reversed.allgather(mine, all);
    for (int i = 0; i < kRanks; ++i) {
      if (all.values<std::int32_t>()[i] != kRanks - 1 - i) ++wrong;
    }
  });
}

TEST_CASE("a subgroup has the ranks that are listed, in that order; groups of groups too") {
  in_layouts(kLayouts, [&](Communicator& world, std::atomic<int>& wrong) {
    const std::vector<int> listed{6, 1, 4, 3};
    std::optional<Communicator> group = world.subgroup(listed);
    const auto place = std::ranges::find(listed, world.rank());
    if (group.has_value() != (place != listed.end())) ++wrong;
    if (!group) return;
    if (group->rank() != place - listed.begin()) ++wrong;
    if (!sums(*group, world, listed, 7000, true)) ++wrong;
    Communicator half = group->split(group->rank() % 2);
    const std::vector<int> ranks =
        group->rank() % 2 == 0 ? std::vector<int>{6, 4} : std::vector<int>{1, 3};
    if (half.job_rank() != world.rank()) ++wrong;
    if (!sums(half, world, ranks, 7000, false)) ++wrong;
    if (!sums(*group, world, listed, 70, true)) ++wrong;
  });
}

TEST_CASE("members make their group without the other ranks, in any order of groups") {
  in_layouts(kLayouts, [&](Communicator& world, std::atomic<int>& wrong) {
    const std::vector<std::vector<int>> all{{6, 1, 4, 3}, {1, 2}, {0, 5, 7}, {3}, {1, 6, 5}};
    for (const std::vector<int>& listed : all) {
      const auto place = std::ranges::find(listed, world.rank());
      if (place == listed.end()) continue;
      Communicator group = world.create_group(listed);
      if (group.rank() != place - listed.begin()) ++wrong;
      if (!sums(group, world, listed, 7000, true)) ++wrong;
      Communicator again = world.create_group(listed);
      if (!sums(again, world, listed, 70, true)) ++wrong;
      if (!sums(group, world, listed, 70, true)) ++wrong;
    }
    Communicator row = world.split(world.rank() / kColumns);  // numbers differ between ranks now
    if (!sums(row, world, row_of(world.rank()), 7000, true)) ++wrong;
  });
}

TEST_CASE("what is wrong with a list of members, or on one of them, is told") {
  std::atomic<int> fine{0};
  const auto outcomes = test::as_ranks({2, 2}, small_pieces(), [&](Communicator& world) {
    const auto with = [&](const std::vector<int>& ranks) {
      return [&world, ranks] { static_cast<void>(world.create_group(ranks)); };
    };
    constexpr auto kInvalid = ErrorCode::invalid_argument;
    fine += throws(with({}), kInvalid, {"create_group()", "a group needs a rank"});
    fine += throws(with({world.rank(), 4}), kInvalid, {"4 is not a rank; expected 0 to 3"});
    const std::vector<int> others{(world.rank() + 1) % 4};
    fine += throws(with(others), kInvalid, {"this rank,", "is not in the list"});
    if (world.rank() == 0) return;
    world.group()->numbers().is_drawing = world.rank() == 2;
    fine += throws(with({1, 2, 3}), kInvalid,
                   {"create_group(1, 2, 3): rank 2", "another thread of this process is making"});
    world.group()->numbers().is_drawing = false;
    Communicator group = world.create_group(std::vector<int>{1, 2, 3});
    fine += sums(group, world, {1, 2, 3}, 3000, true);
  });
  CHECK(test::all_returned(outcomes));
  CHECK(fine == 4 * 3 + 3 * 2);
}

TEST_CASE("lists that name no group are refused on all ranks, and change nothing") {
  std::atomic<int> fine{0};
  const auto outcomes = test::as_ranks({2, 2}, small_pieces(), [&](Communicator& world) {
    const auto with = [&](const std::vector<int>& ranks) {
      return [&world, ranks] { static_cast<void>(world.subgroup(ranks)); };
    };
    constexpr auto kInvalid = ErrorCode::invalid_argument;
    fine += throws(with({}), kInvalid, {"subgroup()", "a group needs a rank"});
    fine += throws(with({0, 4}), kInvalid, {"subgroup(0, 4)", "4 is not a rank; expected 0 to 3"});
    fine += throws(with({-1, 2}), kInvalid, {"-1 is not a rank"});
    fine += throws(with({1, 2, 1}), kInvalid, {"rank 1 is named twice"});
    const int second = world.rank() == 3 ? 2 : 1;
    fine += throws(with({0, second}), ErrorCode::mismatch, {"subgroup(0, 1)", "subgroup(0, 2)"});
    fine += throws(
        [&] {
          if (world.rank() == 2) return world.barrier();
          static_cast<void>(world.split(0));
        },
        ErrorCode::mismatch, {"split(color 0, key 0)", "barrier"});
    Communicator all = world.split(0);
    fine += sums(all, world, {0, 1, 2, 3}, 3000, true);
  });
  CHECK(test::all_returned(outcomes));
  CHECK(fine == 4 * 7);
}

TEST_CASE("messages name a rank in the group and in the job, and the group") {
  std::atomic<int> fine{0};
  std::atomic<bool> has_failed{false};
  const auto outcomes =
      test::as_ranks({4}, small_pieces(test::kShortDeadline.count()), [&](Communicator& world) {
        Communicator odd = world.split(world.rank() % 2);
        fine += throws(
            [&] {
              Tensor tensor = Tensor::zeros({odd.rank() == 0 ? 3 : 4});
              odd.allreduce(tensor);
            },
            ErrorCode::mismatch,
            {world.rank() % 2 == 0 ? "of the group of ranks 0 and 2 of the job"
                                   : "of the group of ranks 1 and 3 of the job",
             world.rank() % 2 == 0 ? "rank 1 (rank 2 of the job" : "rank 1 (rank 3 of the job"});
        if (world.rank() % 2 == 0) {
          fine += sums(odd, world, {0, 2}, 900, true);
        } else if (world.rank() == 1) {
          fine += throws([&] { odd.barrier(); }, ErrorCode::timeout,
                         {"barrier (call 2 of the group of ranks 1 and 3 of the job)",
                          "rank 1 (rank 3 of the job"});
          has_failed = true;
        } else {
          while (!has_failed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          fine +=
              throws([&] { odd.barrier(); }, ErrorCode::timeout, {"of the group of ranks 1 and 3"});
        }
      });
  CHECK(test::all_returned(outcomes));
  CHECK(fine == 4 + 4);
}

TEST_CASE("a group that has failed leaves the others, and the job, as they were") {
  std::atomic<int> fine{0};
  const auto outcomes = test::as_ranks({2, 2}, small_pieces(20), [&](Communicator& world) {
    Communicator pair = world.split(world.rank() / 2);
    if (world.rank() == 0) {
      Communicator gone = std::move(pair);
    } else if (world.rank() == 1) {
      fine += throws([&] { pair.barrier(); }, ErrorCode::communication,
                     {"rank 0 (rank 0 of the job", "left before this call"});
    } else {
      fine += sums(pair, world, {2, 3}, 5000, false);
    }
    fine += sums(world, world, {0, 1, 2, 3}, 5000, true);
    Communicator again = world.split(0);
    fine += sums(again, world, {0, 1, 2, 3}, 5000, true);
  });
  CHECK(test::all_returned(outcomes));
  CHECK(fine == 3 + 4 + 4);
}

TEST_CASE("stores over groups and over the job work beside each other") {
  in_layouts(kLayouts, [&](Communicator& world, std::atomic<int>& wrong) {
    const int rank = world.rank();
    Communicator row = world.split(rank / kColumns);
    KVStore of_row = KVStore::create(row);
    KVStore of_job = KVStore::create(world);
    Tensor value = of_job.allocate({3000});
    of_row.init("w", value);
    of_job.init("w", value);
    for (int step = 0; step < 3; ++step) {
      std::ranges::copy(test::values_of(rank, 3000), value.values<float>().begin());
      of_row.push("w", value);
      of_job.push("w", value);
    }
    std::vector<int> all(kRanks);
    std::iota(all.begin(), all.end(), 0);
    const auto holds = [&](KVStore& store, const std::vector<int>& ranks) {
      return test::same_bits(store.view("w").values<float>(), sum_over(ranks, 3000));
    };
    if (!holds(of_row, row_of(rank)) || !holds(of_job, all)) ++wrong;
    if (of_row.num_workers() != kColumns) ++wrong;
  });
}

TEST_CASE("the memory of groups that have ended is used again") {
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks({3, 1}, small_pieces(), [&](Communicator& world) {
    const auto next_free = [&] {
      world.barrier();
      return world.allocate({1 << 20}).bytes();
    };
    const auto make_and_end = [&] {
      Communicator pair = world.split(world.rank() % 2, -world.rank());
      if (!sums(pair, world,
                world.rank() % 2 == 0 ? std::vector<int>{2, 0} : std::vector<int>{3, 1}, 4000,
                false)) {
        ++wrong;
      }
    };
    make_and_end();  // makes the world's own tables grow
    const std::byte* const before = next_free();
    for (int i = 0; i < 100; ++i) make_and_end();
    if (next_free() != before) ++wrong;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
}

TEST_CASE("the memory of groups that a rank could not make is used again") {
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks({3, 1}, small_pieces(), [&](Communicator& world) {
    const std::vector<int> all{0, 1, 2, 3};
    const auto next_free = [&] {
      world.barrier();
      return world.allocate({1 << 20}).bytes();
    };
    const auto fail_to_make = [&] {
      // Too little memory for the copies of other ranks' data, which are made when all have control
      // blocks.
      if (world.rank() == 1) test::set_most_of_array(1000);
      for (const bool with_all : {true, false}) {
        const auto make = [&] {
          static_cast<void>(with_all ? world.split(0) : world.create_group(all));
        };
        if (!throws(make, ErrorCode::out_of_memory, {"rank 1", "no memory"})) ++wrong;
      }
      test::set_most_of_array(test::kAnyArray);
    };
    fail_to_make();  // makes the world's own tables grow
    const std::byte* const before = next_free();
    for (int i = 0; i < 20; ++i) fail_to_make();
    if (next_free() != before) ++wrong;
    Communicator group = world.split(0);
    if (!sums(group, world, all, 4000, true)) ++wrong;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
}

TEST_CASE("a group lives on when the communicator that it comes from has ended") {
  std::atomic<int> wrong{0};
  const auto outcomes = test::as_ranks({2, 2}, small_pieces(), [&](Communicator& world) {
    const std::vector<int> ranks =
        world.rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
    const int rank = world.rank();
    Communicator pair = world.split(rank / 2);
    Tensor tensor = world.allocate({5000});
    world = Communicator::self(small_pieces());
    std::ranges::copy(test::values_of(rank, 5000), tensor.values<float>().begin());
    pair.allreduce(tensor);
    if (!test::same_bits(tensor.values<float>(), sum_over(ranks, 5000))) ++wrong;
  });
  CHECK(test::all_returned(outcomes));
  CHECK(wrong == 0);
}

TEST_CASE("a trace has a group's calls under the rank of the job, on a line of their own") {
  std::atomic<int> fine{0};
  const auto outcomes = test::as_ranks({3}, small_pieces(), [&](Communicator& world) {
    Communicator group = world.split(world.rank() == 1 ? 1 : 0, -world.rank());
    collectives::Engine& engine = group.group()->engine();
    engine.keep_spans(100);
    group.barrier();
    const std::string text = observe::trace_events(engine, "", 0);
    const std::string process = R"("pid":)" + std::to_string(world.rank() + 1) + ",";
    const std::string thread = R"("tid":)" + std::to_string(1'000'001 + world.rank()) + ",";
    const char* const name = world.rank() == 1
                                 ? R"("calls of the group of rank 1 of the job")"
                                 : R"("calls of the group of ranks 2 and 0 of the job")";
    for (const std::string& part : {process, thread, std::string(name), std::string("barrier")}) {
      if (text.find(part) != text.npos) ++fine;
    }
  });
  CHECK(test::all_returned(outcomes));
  CHECK(fine == 3 * 4);
}

TEST_CASE("blocks, messages and averages go between a group's ranks") {
  in_layouts(kLayouts, [&](Communicator& world, std::atomic<int>& wrong) {
    const int rank = world.rank();
    Communicator row = world.split(rank / kColumns);
    Communicator column = world.split(rank % kColumns);
    Tensor mine = Tensor::full({1}, rank);
    Tensor theirs = Tensor::zeros({1});
    const int other = 1 - column.rank();
    if (column.rank() == 0) column.send(mine, other);
    column.receive(theirs, other);
    if (column.rank() == 1) column.send(mine, other);
    if (theirs.value() != (rank + kColumns) % kRanks) ++wrong;
    Tensor given = Tensor::full({kColumns}, rank);
    Tensor taken = Tensor::zeros({kColumns});
    row.alltoall(given, taken);
    for (int i = 0; i < kColumns; ++i) {
      if (taken.values<float>()[i] != static_cast<float>(row_of(rank)[i])) ++wrong;
    }
    row.allreduce(mine, ReduceOp::avg);
    if (mine.value() != row_of(rank)[0] + 1.5) ++wrong;
  });
}

TEST_CASE("one thread of a process makes groups at a time") {
  const auto groups = make_thread_groups({2}, small_pieces());
  groups[1]->numbers().is_drawing.store(true);  // another thread is making one
  const auto outcomes =
      test::run_ranks(groups, [](Communicator& world) { static_cast<void>(world.split(0)); });
  CHECK(test::all_say(outcomes, ErrorCode::invalid_argument,
                      "split(color 0, key 0): another thread of this process is making a group"));
}

TEST_CASE("asynchronous pushes of a group go on beside calls of the job") {
  in_layouts({{4}, {2, 2}}, [&](Communicator& world, std::atomic<int>& wrong) {
    Communicator pair = world.split(world.rank() % 2);
    const std::vector<int> ranks =
        world.rank() % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3};
    KVStore store = KVStore::create(pair);
    store.init("w", Tensor::zeros({4000}));
    Tensor value = Tensor::empty({4000});
    std::ranges::copy(test::values_of(world.rank(), 4000), value.values<float>().begin());
    for (int step = 0; step < 5; ++step) {
      const Pending sent = store.push_async("w", value);
      if (!sums(world, world, {0, 1, 2, 3}, 2000, true)) ++wrong;
      sent.wait();
      if (!test::same_bits(store.view("w").values<float>(), sum_over(ranks, 4000))) ++wrong;
    }
  });
}
