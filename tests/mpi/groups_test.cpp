// SPDX-License-Identifier: Apache-2.0
// Groups of some of the ranks of a job, in real processes and on virtual nodes.
#include <algorithm>
#include <chrono>
#include <mpi.h>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tutti/mpi.hpp"

#include "tests/mpi/checkpoint_fixture.hpp"
#include "tests/support/hasty_group.hpp"
#include "tests/support/mpi_test.hpp"
#include "tests/support/oracle.hpp"

using tutti::Communicator;
using tutti::DType;
using tutti::ErrorCode;
using tutti::Tensor;

namespace {

/// Two rows, as far as the number of ranks allows.
int columns() { return std::max(1, test::size() / 2); }

Communicator world_of(const test::Layout& layout) {
  return Communicator::world(test::settings_for(layout, /*reproducible=*/true));
}

/// Ranks whose number divided by columns(), or modulo it, is this rank's.
std::vector<int> row_ranks() {
  std::vector<int> ranks;
  for (int rank = 0; rank < test::size(); ++rank) {
    if (rank / columns() == test::rank() / columns()) ranks.push_back(rank);
  }
  return ranks;
}
std::vector<int> column_ranks() {
  std::vector<int> ranks;
  for (int rank = 0; rank < test::size(); ++rank) {
    if (rank % columns() == test::rank() % columns()) ranks.push_back(rank);
  }
  return ranks;
}

/// Small whole numbers, so that the sum is exact in any order.
float value_of(int rank, std::int64_t count) { return static_cast<float>(rank + 1 + count % 7); }

bool sums(Communicator& group, Communicator& memory, const std::vector<int>& ranks,
          std::int64_t count, bool shared) {
  Tensor tensor = shared ? memory.allocate({count}) : Tensor::empty({count});
  std::ranges::fill(tensor.values<float>(), value_of(test::rank(), count));
  group.allreduce(tensor);
  float expected = 0;
  for (const int rank : ranks) expected += value_of(rank, count);
  return std::ranges::all_of(tensor.values<float>(),
                             [&](float value) { return value == expected; });
}

}  // namespace

TEST_CASE("rows and columns of a grid sum over their ranks, in every layout") {
  for (const test::Layout& layout : test::all_layouts()) {
    CAPTURE(test::to_string(layout));
    Communicator world = world_of(layout);
    Communicator row = world.split(test::rank() / columns());
    Communicator column = world.split(test::rank() % columns(), test::rank());
    bool right = row.job_rank() == test::rank() &&
                 row.size() == static_cast<int>(row_ranks().size()) &&
                 column.size() == static_cast<int>(column_ranks().size());
    for (const std::int64_t count : {0, 1, 5, 300, 70'001, 600'000}) {
      for (const bool shared : {true, false}) {
        right = sums(row, world, row_ranks(), count, shared) && right;
        right = sums(column, world, column_ranks(), count, shared) && right;
      }
    }
    CHECK(test::agree(right));
  }
}

TEST_CASE("random calls of rows, columns and the job in turn, with delays, are right and end") {
  const int calls = test::size() == 8 ? 10'000 : 1000;
  Communicator world = world_of(test::one_node());
  Communicator row = world.split(test::rank() / columns());
  Communicator column = world.split(test::rank() % columns());
  std::vector<int> all(static_cast<std::size_t>(test::size()));
  std::iota(all.begin(), all.end(), 0);
  std::mt19937 common(11);
  std::mt19937 own(static_cast<unsigned>(test::rank()) + 1);
  bool right = true;
  for (int call = 0; call < calls; ++call) {
    constexpr std::int64_t kCounts[] = {0, 1, 7, 100, 3000};
    const std::int64_t count = kCounts[common() % 5];
    const unsigned which = common() % 8;
    const bool shared = common() % 2 == 0;
    if (own() % 128 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 500));
    if (which == 0) {
      right = sums(world, world, all, count, shared) && right;
    } else if (which % 2 == 0) {
      right = sums(row, world, row_ranks(), count, shared) && right;
    } else {
      right = sums(column, world, column_ranks(), count, shared) && right;
    }
  }
  CHECK(test::agree(right));
}

TEST_CASE("collectives of a group count its ranks") {
  for (const test::Layout& layout : test::equal_blocks()) {
    Communicator world = world_of(layout);
    Communicator reversed = world.split(3, -test::rank());
    const int size = test::size();
    CHECK(test::agree(reversed.rank() == size - 1 - test::rank()));
    Tensor all = Tensor::empty({size}, DType::int32);
    Tensor mine = Tensor::empty({1}, DType::int32);
    mine.values<std::int32_t>()[0] = test::rank();
    reversed.allgather(mine, all);
    bool right = true;
    for (int i = 0; i < size; ++i) right = right && all.values<std::int32_t>()[i] == size - 1 - i;
    reversed.broadcast(mine, 0);
    right = right && mine.values<std::int32_t>()[0] == size - 1;
    CHECK(test::agree(right));
  }
}

TEST_CASE("a subgroup has the ranks that are listed, and errors come out on all ranks") {
  Communicator world = world_of(test::one_node());
  const std::vector<int> listed = {test::size() - 1, 0};
  const std::vector<int> first = {0};
  const bool is_listed = test::rank() == 0 || test::is_last();
  auto group = world.subgroup(test::size() == 1 ? first : listed);
  CHECK(test::agree(group.has_value() == is_listed));
  bool right = true;
  if (group && test::size() > 1) right = sums(*group, world, listed, 9000, false);
  CHECK(test::agree(right));
  const std::vector<int> outside = {0, test::size()};
  CHECK(test::throws_on_all([&] { static_cast<void>(world.subgroup(outside)); },
                            ErrorCode::invalid_argument, {"is not a rank; expected 0 to"}));
}

TEST_CASE("stores of groups save and load, each in a folder of its own") {
  test::with_folder([](const test::fs::path& folder) {
    for (const test::Layout& layout : test::equal_blocks()) {
      Communicator world = world_of(layout);
      Communicator row = world.split(test::rank() / columns());
      const std::string name =
          "row" + std::to_string(test::rank() / columns()) + "of" + std::to_string(layout.size());
      auto store = tutti::KVStore::create(row);
      store.init("w", Tensor::zeros({5000}));
      store.push("w", Tensor::full({5000}, value_of(test::rank(), 0)));
      store.save(folder / name, {{"step", "7"}});
      auto later = tutti::KVStore::create(row);
      const tutti::LoadResult loaded = later.load(folder / name);
      float expected = 0;
      for (const int rank : row_ranks()) expected += value_of(rank, 0);
      CHECK(test::agree(loaded.metadata.at("step") == "7" &&
                        later.view("w").value<float>(4999) == expected));
    }
  });
}

TEST_CASE("exchange by MPI works in groups, too") {
  if (test::size() < 4) return;
  tutti::Settings settings = test::settings_for({2});
  settings.algorithms = "exchange=mpi";
  Communicator world = Communicator::world(settings);
  Communicator odd = world.split(test::rank() % 2);
  std::vector<int> ranks;
  for (int rank = test::rank() % 2; rank < test::size(); rank += 2) ranks.push_back(rank);
  bool right = true;
  for (const std::int64_t count : {10, 100'000}) {
    right = sums(odd, world, ranks, count, true) && right;
  }
  CHECK(test::agree(right));
}

TEST_CASE("a communicator of MPI becomes one of the library") {
  const MPI_Comm job = tutti::duplicate_world();
  MPI_Comm half = MPI_COMM_NULL;
  REQUIRE(MPI_Comm_split(job, test::rank() % 2, -test::rank(), &half) == MPI_SUCCESS);
  int mpi_rank = 0;
  MPI_Comm_rank(half, &mpi_rank);
  Communicator group = tutti::communicator_from(half, test::settings());
  MPI_Comm_free(&half);
  std::vector<int> ranks;
  for (int rank = test::rank() % 2; rank < test::size(); rank += 2) ranks.push_back(rank);
  bool right = group.rank() == mpi_rank && group.job_rank() == test::rank();
  for (const std::int64_t count : {0, 1, 4000, 500'000}) {
    right = sums(group, group, ranks, count, count != 4000) && right;
  }
  CHECK(test::agree(right));
}

TEST_CASE("what is no group of MPI's ranks is refused") {
  const auto none = test::error_of(
      [] { static_cast<void>(tutti::communicator_from(MPI_COMM_NULL, test::settings())); });
  CHECK(test::agree(test::is_refusal(none, ErrorCode::invalid_argument, {"MPI_COMM_NULL"})));
  const bool is_openmpi = tutti::kMpiAbi == tutti::MpiAbi::openmpi;
  const auto foreign = is_openmpi ? tutti::MpiAbi::mpich : tutti::MpiAbi::openmpi;
  const MPI_Comm all = MPI_COMM_WORLD;
  const auto other =
      test::error_of([&] { static_cast<void>(tutti::communicator_from_address(&all, foreign)); });
  CHECK(test::agree(test::is_refusal(
      other, ErrorCode::invalid_argument,
      {"communicator_from: the caller was compiled with the mpi.h of ", ", and this process uses ",
       is_openmpi ? "start it with the launcher of MPICH" : "launcher of Open MPI"})));
  tutti::Settings settings = test::settings();
  settings.mpi = to_string(foreign);
  const auto second =
      test::error_of([&] { static_cast<void>(tutti::Communicator::world(settings)); });
  CHECK(test::agree(
      test::is_refusal(second, ErrorCode::invalid_argument,
                       {"TUTTI_MPI=" + settings.mpi + ", but this process uses ", "already"})));
  if (test::size() < 2) return;
  const MPI_Comm job = tutti::duplicate_world();
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm between = MPI_COMM_NULL;
  const int color = test::rank() == 0 ? 0 : 1;
  REQUIRE(MPI_Comm_split(job, color, 0, &half) == MPI_SUCCESS);
  REQUIRE(MPI_Intercomm_create(half, 0, job, color == 0 ? 1 : 0, 7, &between) == MPI_SUCCESS);
  const auto inter = test::error_of(
      [&] { static_cast<void>(tutti::communicator_from(between, test::settings())); });
  CHECK(test::agree(test::is_refusal(inter, ErrorCode::invalid_argument,
                                     {"an intercommunicator", "MPI_Intercomm_merge"})));
  MPI_Comm_free(&between);
  MPI_Comm_free(&half);
}

TEST_CASE("a deadline in one group names ranks of the group and of the job; the job goes on") {
  if (test::size() < 3) return;
  tutti::Settings settings = test::settings();
  settings.log = tutti::LogLevel::quiet;
  Communicator world = Communicator::world(settings);
  Communicator group =
      test::hasty_group(world, test::rank() == 0 ? 0 : 1, std::chrono::milliseconds(1500));
  bool right = true;
  if (test::rank() == 1) {
    const auto error = test::error_of([&] { group.barrier(); });
    right = error && error->code() == ErrorCode::timeout && !error->recoverable();
    for (const std::string words : {"barrier (call 1 of the group of rank", " of the job, host"}) {
      right = right && std::string(error->what()).find(words) != std::string::npos;
    }
    if (!right && error) MESSAGE(error->what());
  }
  CHECK(test::agree(right));
  Tensor one = Tensor::ones({100});
  world.allreduce(one);
  CHECK(test::agree(one.values<float>()[99] == static_cast<float>(test::size())));
}
