// SPDX-License-Identifier: Apache-2.0
#include "apps/simulator/measure.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <malloc.h>
#include <span>
#include <unistd.h>
#include <utility>
#include <vector>

#include <tutti/tutti.hpp>

#include "apps/simulator/textbook.hpp"
#include "runtime/simulated/cluster.hpp"
#include "support/text.hpp"

namespace apps::simulator {

namespace {

using tutti::Communicator;
using tutti::simulated::Cluster;
using tutti::simulated::in_picoseconds;
using tutti::simulated::kSecond;
using tutti::simulated::Spent;
using tutti::simulated::Time;

constexpr int kFewestCalls = 2;  // the last of them counts, or is followed by those that count
constexpr int kMostCalls = 100;
constexpr Time kApart = 10'000 * kSecond;  // time between the begins of two calls
// The most bytes of values of all ranks that are real; scratch takes as many more.
constexpr std::size_t kMostValues = std::size_t{256} << 20;

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::size_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  constexpr std::size_t kKibibyte = 1024;
  std::string name;
  std::size_t value = 0;
  for (std::string unit; file >> name >> value && std::getline(file, unit);) {
    if (name == "MemAvailable:") return value * kKibibyte;
  }
  return std::numeric_limits<std::size_t>::max();
}

bool has_data(const SimulatedCall& what) {
  return static_cast<std::size_t>(what.ranks()) * std::max<std::size_t>(what.bytes, 1) <=
         kMostValues;
}

/// The memory that a case needs, as measured: a rank of the library takes itself, its values, and
/// three times as much for messages under way, up to a limit. A rank of the textbook takes its
/// values and scratch.
double bytes_needed(const SimulatedCall& what) {
  constexpr double kOfRank = double{512 << 10};
  constexpr double kMostOnTheWay = double{48 << 20};
  constexpr double kOfTextbook = double{256 << 10};  // the stack of its fibre
  const double ranks = what.ranks();
  const auto bytes = static_cast<double>(what.bytes);
  // The others are a replica and a residual.
  const double copies = what.collective == "allreduce" ? 2 : 4;
  const double values = has_data(what) || what.buffers == "store" ? copies * bytes : 0;
  if (what.algorithm != "tutti") return ranks * (kOfTextbook + values);
  return ranks * (kOfRank + values + std::min(3 * bytes, kMostOnTheWay)) + bytes;
}

bool is_exact(const SimulatedCall& what) {
  using namespace tutti::compression;
  const tutti::Compression chosen = create(what.compression);
  return !std::holds_alternative<TwoBit>(chosen) && !std::holds_alternative<OneBit>(chosen) &&
         !std::holds_alternative<TopK>(chosen);
}

// The values that ranks sum: whole numbers, so that the sum is the same in every order.
constexpr std::size_t kPeriodOfValues = 7;
constexpr int kPeriodOfRanks = 5;

// Fills a rank's input. The values differ from those of the calls before, so that a stale result is
// noticed.
void fill(std::span<float> values, int rank, bool is_last) {
  const float first = static_cast<float>(rank % kPeriodOfRanks) + (is_last ? 1.0F : 0.0F);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = first + static_cast<float>(i % kPeriodOfValues);
  }
}

/// The number of elements of the last call that are not the sum, or not there, of `expected`.
std::uint64_t count_wrong(std::span<const float> sums, int ranks, std::size_t expected) {
  float of_ranks = 0;
  for (int i = 0; i < ranks; ++i) of_ranks += static_cast<float>(i % kPeriodOfRanks) + 1.0F;
  std::uint64_t wrong = expected - std::min(expected, sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    wrong +=
        sums[i] != of_ranks + static_cast<float>(ranks) * static_cast<float>(i % kPeriodOfValues);
  }
  return wrong;
}

/// The ordinary memory of all ranks. Where contents do not matter, ranks share one array.
class Arrays {
 public:
  Arrays(const SimulatedCall& what, bool own)
      : own_(own),
        arrays_(static_cast<std::size_t>(own ? what.ranks() : 1),
                std::vector<float>(what.bytes / sizeof(float))) {}

  std::span<float> of(int rank) { return arrays_[static_cast<std::size_t>(own_ ? rank : 0)]; }

 private:
  bool own_;
  std::vector<std::vector<float>> arrays_;
};

/// One rank's part in the calls.
struct RankCalls {
  std::span<float> input;
  std::span<float> output;
  std::function<void()> call;
  std::function<bool()> is_learning;
  std::function<void()> barrier;
};

/// The calls of all ranks, one of which is the last that counts.
class Calls {
 public:
  Calls(Cluster& cluster, Measured& result) : cluster_(cluster), result_(result) {}

  void run(int rank, const RankCalls& own) {
    const bool after_barrier = result_.what.begin == Begin::after_barrier;
    int number = 0;
    while (++number < kFewestCalls || (number < kMostCalls && own.is_learning())) {
      prepare(rank, own, number);
      time(rank, own, nullptr);
    }
    if (after_barrier) run_in_turn(rank, own);
    prepare(rank, own, number, true);
    if (rank == 0) cluster_.wires().reset_traffic();
    if (!after_barrier) record();
    time(rank, own, after_barrier ? nullptr : &longest_.front());
    result_.traffic = cluster_.wires().traffic();
    if (!result_.wrong) return;
    *result_.wrong +=
        count_wrong(own.output, result_.what.ranks(), result_.what.bytes / sizeof(float));
  }

  void finish() {
    const auto middle = longest_.begin() + static_cast<std::ptrdiff_t>(longest_.size() / 2);
    std::nth_element(longest_.begin(), middle, longest_.end());
    result_.seconds = *middle;
  }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  auto& simulation() { return cluster_.simulation(); }

  void fill_input(int rank, const RankCalls& own, bool is_last) {
    if (simulation().pace(rank).work(result_.what.bytes)) fill(own.input, rank, is_last);
  }

  /// Runs as many calls as fit into a quarter of a second, as collective-benchmark does. The rank
  /// that is first to see that the time is over says which call is the last; no other rank has
  /// begun that one.
  void run_in_turn(int rank, const RankCalls& own) {
    constexpr std::size_t kFewest = 5;
    constexpr std::size_t kMost = 2000;
    const Time end = simulation().now() + kSecond / 4;
    for (std::size_t i = 0; i <= last_; ++i) {
      fill_input(rank, own, false);
      for (int barrier = 0; barrier < 2; ++barrier) own.barrier();
      if (i == last_) record();
      if (longest_.size() <= i) longest_.resize(i + 1);
      time(rank, own, &longest_[i]);
      const bool is_over = i + 1 >= kFewest && (simulation().now() > end || i + 3 >= kMost);
      if (is_over && last_ == kNone) last_ = i + 2;
    }
  }

  /// Makes all ranks begin a call at the same time, whatever the call before has left under way.
  void prepare(int rank, const RankCalls& own, int number, bool is_last = false) {
    fill_input(rank, own, is_last);
    simulation().sleep_until(number * kApart);
  }

  void record() {
    if (!std::exchange(recorded_, true)) simulation().record(true);
  }

  void time(int rank, const RankCalls& own, double* longest) {
    const Time begin = simulation().now();
    simulation().spend(in_picoseconds(simulation().network().call), Spent::call);
    own.call();
    const double took = static_cast<double>(simulation().now() - begin) / kSecond;
    if (longest != nullptr) *longest = std::max(*longest, took);
    if (longest == nullptr || !recorded_ || took <= slowest_) return;
    slowest_ = took;
    result_.path = path_of(simulation(), rank, begin);
  }

  Cluster& cluster_;
  Measured& result_;
  std::vector<double> longest_{0};  ///< times of the calls that count, by their number
  std::size_t last_ = kNone;        ///< number of the last of them
  bool recorded_ = false;
  double slowest_ = 0;
};

void call_library(Calls& calls, const SimulatedCall& what, Communicator& comm, RankCalls own) {
  const tutti::Shape shape{static_cast<std::int64_t>(what.bytes / sizeof(float))};
  std::vector<tutti::Tensor> of_node;
  if (what.buffers == "store") {
    for (std::span<float>* span : {&own.input, &own.output}) {
      of_node.push_back(comm.allocate(shape));
      *span = of_node.back().values<float>();
    }
  }
  const tutti::TensorView input = tutti::view(own.input.data(), shape);
  const tutti::TensorView output = tutti::view(own.output.data(), shape);
  own.is_learning = [&] { return comm.is_learning(); };
  own.barrier = [&] { comm.barrier(); };
  if (what.collective == "allreduce") {
    own.call = [&] { comm.allreduce(input, output); };
    return calls.run(comm.rank(), own);
  }
  tutti::KVStore store = tutti::KVStore::create(comm);
  store.set_gradient_compression(tutti::compression::create(what.compression));
  store.init(0, tutti::Tensor::zeros(shape));
  own.call = [&] { store.pushpull(0, input, output); };
  calls.run(comm.rank(), own);
}

void run_library(Cluster& cluster, Measured& result) {
  const SimulatedCall& what = result.what;
  const bool own = cluster.simulation().has_data() && what.buffers == "user";
  SimulatedCall none = what;
  if (what.buffers != "user") none.bytes = 0;
  Arrays inputs(none, own);
  Arrays outputs(none, own);
  Calls calls(cluster, result);
  const auto outcomes = cluster.run([&](Communicator& comm) {
    RankCalls of_rank;
    of_rank.input = inputs.of(comm.rank());
    of_rank.output = outputs.of(comm.rank());
    if (what.buffers != "user") of_rank.input = of_rank.output = {};
    call_library(calls, what, comm, std::move(of_rank));
  });
  for (const auto& outcome : outcomes) {
    if (outcome) throw tutti::Error(*outcome);
  }
  calls.finish();
}

void run_textbook(const Textbook& algorithm, Cluster& cluster, Measured& result) {
  const bool own = cluster.simulation().has_data();
  Arrays values(result.what, own);
  Arrays scratch(result.what, own);
  Calls calls(cluster, result);
  cluster.simulation().run([&](int rank) {
    Endpoint end(cluster.simulation(), cluster.wires(), rank);
    calls.run(rank, {.input = values.of(rank),
                     .output = values.of(rank),
                     .call = [&] { algorithm.run(end, values.of(rank), scratch.of(rank)); },
                     .is_learning = [] { return false; },
                     .barrier = [&] { end.barrier(); }});
  });
  calls.finish();
}

/// The network with the rate of the memory in place of the caches', if the data that a call reads
/// and writes do not fit into the caches of a machine. Where all nodes share the cores, they share
/// the caches.
tutti::simulated::Network with_caches(tutti::simulated::Network network,
                                      const SimulatedCall& what) {
  const int ranks = network.cores > 0 ? what.ranks() : what.ranks_per_node;
  const double arrays = what.collective == "allreduce" ? 2 : 3;  // the third is a replica
  const double bytes = arrays * ranks * static_cast<double>(what.bytes);
  if (bytes > network.cache_bytes) {
    network.core_rate = std::min(network.core_rate, network.memory_rate);
  }
  return network;
}

/// Gives free memory back to the system: the allocator would keep it in pieces that the next
/// cluster may not fit into.
void give_memory_back() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace

void require_memory(const SimulatedCall& what) {
  const double needed = bytes_needed(what);
  const auto available = static_cast<double>(available_bytes());
  if (needed <= available) return;
  throw tutti::Error(tutti::ErrorCode::out_of_memory,
                     std::to_string(what.ranks()) + " ranks of " +
                         bytes_text(static_cast<double>(what.bytes)) + " need about " +
                         bytes_text(needed) + " of memory here, and " + bytes_text(available) +
                         " are available; simulate fewer ranks, or fewer bytes");
}

Measured measure(const NamedNetwork& network, const SimulatedCall& what) {
  give_memory_back();
  require_memory(what);
  Measured result;
  result.what = what;
  if (has_data(what) && is_exact(what)) result.wrong = 0;
  const std::size_t before = resident_bytes();
  tutti::Settings settings;
  settings.log = tutti::LogLevel::quiet;
  settings.tuning = what.learns ? "at-once" : "static";
  settings.algorithms = what.overrides;
  Cluster cluster(with_caches(network.network, what),
                  std::vector<int>(static_cast<std::size_t>(what.nodes), what.ranks_per_node),
                  settings, has_data(what));
  const auto algorithms = textbook_algorithms();
  const auto chosen = std::find_if(algorithms.begin(), algorithms.end(),
                                   [&](const Textbook& one) { return one.name == what.algorithm; });
  if (chosen == algorithms.end()) {
    run_library(cluster, result);
  } else {
    run_textbook(*chosen, cluster, result);
  }
  const std::size_t after = resident_bytes();
  result.memory_per_rank =
      (std::max(after, before) - before) / static_cast<std::size_t>(what.ranks());
  return result;
}

}  // namespace apps::simulator
