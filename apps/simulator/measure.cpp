// SPDX-License-Identifier: Apache-2.0
#include "apps/simulator/measure.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <malloc.h>
#include <unistd.h>

#include "apps/simulator/textbook.hpp"
#include "runtime/simulated/cluster.hpp"
#include "support/text.hpp"

namespace apps::simulator {

namespace {

using tutti::Communicator;
using tutti::simulated::Cluster;
using tutti::simulated::kSecond;
using tutti::simulated::Time;

constexpr int kFewestCalls = 2;
constexpr int kMostCalls = 100;
constexpr Time kApart = 10'000 * kSecond;  // between the begins of two calls
constexpr std::size_t kMostValues = std::size_t{256}
                                    << 20;  // of all ranks; scratch is as much more

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

bool has_data(const Case& what) {
  return static_cast<std::size_t>(what.ranks()) * std::max<std::size_t>(what.bytes, 1) <=
         kMostValues;
}

/// As measured: a rank of the library takes itself, and three times its values until what is on its
/// way reaches its limit. The textbook's has its values.
double bytes_needed(const Case& what) {
  constexpr double kOfRank = double{512 << 10};
  constexpr double kMostOnTheWay = double{48 << 20};
  constexpr double kOfTextbook = double{256 << 10};  // the stack of its fibre
  const double ranks = what.ranks();
  const auto bytes = static_cast<double>(what.bytes);
  if (what.algorithm != "tutti") return ranks * (kOfTextbook + (has_data(what) ? 3 * bytes : 0));
  return ranks * (kOfRank + std::min(3 * bytes, kMostOnTheWay)) + bytes;
}

/// What ranks sum: whole numbers, so that the sum is the same in every order. Where contents do not
/// matter, all ranks share one array.
class Values {
 public:
  Values(const Case& what, bool own)
      : own_(own),
        ranks_(what.ranks()),
        arrays_(static_cast<std::size_t>(own ? what.ranks() : 1),
                std::vector<float>(what.bytes / sizeof(float))) {}

  std::vector<float>& of(int rank) { return arrays_[static_cast<std::size_t>(own_ ? rank : 0)]; }
  void fill(int rank) {
    if (!own_) return;
    std::vector<float>& values = of(rank);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(rank % 5 + i % 7);
  }
  [[nodiscard]] std::uint64_t wrong(int rank) {
    float ranks = 0;
    for (int i = 0; i < ranks_; ++i) ranks += static_cast<float>(i % 5);
    std::uint64_t wrong = 0;
    const std::vector<float>& values = of(rank);
    for (std::size_t i = 0; i < values.size(); ++i) {
      wrong += values[i] != ranks + static_cast<float>(ranks_) * static_cast<float>(i % 7);
    }
    return wrong;
  }

 private:
  bool own_;
  int ranks_;
  std::vector<std::vector<float>> arrays_;
};

/// All ranks begin each call at the same time, whatever the call before has left under way. The
/// last one counts; `goes_on` says the same to all of them.
void call_together(Cluster& cluster, Measured& result, Values& values, int rank,
                   const std::function<void(std::vector<float>&)>& call,
                   const std::function<bool()>& goes_on) {
  auto& simulation = cluster.simulation();
  bool is_last = false;
  for (int i = 1; !is_last; ++i) {
    is_last = i == kMostCalls || (i >= kFewestCalls && !goes_on());
    values.fill(rank);
    simulation.spend(i * kApart - simulation.now());
    if (rank == 0) cluster.wires().reset_traffic();
    simulation.spend(tutti::simulated::in_picoseconds(simulation.network().call));
    call(values.of(rank));
    const auto took = static_cast<double>(simulation.now() - i * kApart);
    result.seconds = is_last ? std::max(result.seconds, took / kSecond) : 0;
    if (is_last) result.traffic = cluster.wires().traffic();
    if (result.wrong) *result.wrong += values.wrong(rank);
  }
}

void run_library(Cluster& cluster, Measured& result, Values& values) {
  const auto outcomes = cluster.run([&](Communicator& comm) {
    call_together(
        cluster, result, values, comm.rank(),
        [&](std::vector<float>& own) {
          comm.allreduce(tutti::view(own.data(), {static_cast<std::int64_t>(own.size())}));
        },
        [&] { return comm.is_learning(); });
  });
  for (const auto& outcome : outcomes) {
    if (outcome) throw tutti::Error(*outcome);
  }
}

void run_textbook(const Textbook& algorithm, Cluster& cluster, Measured& result, Values& values) {
  std::vector<float> shared(values.of(0).size());
  cluster.simulation().run([&](int rank) {
    Endpoint end(cluster.simulation(), cluster.wires(), rank);
    std::vector<float> own(cluster.simulation().has_data() ? shared.size() : 0);
    call_together(
        cluster, result, values, rank,
        [&](std::vector<float>& summed) {
          algorithm.run(end, summed, own.empty() ? std::span(shared) : std::span(own));
        },
        [] { return false; });
  });
}

/// The allocator keeps what it has had, in pieces that the next cluster may not fit into.
void give_memory_back() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace

void require_memory(const Case& what) {
  const double needed = bytes_needed(what);
  const auto available = static_cast<double>(available_bytes());
  if (needed <= available) return;
  throw tutti::Error(tutti::ErrorCode::out_of_memory,
                     std::to_string(what.ranks()) + " ranks of " +
                         bytes_text(static_cast<double>(what.bytes)) + " need about " +
                         bytes_text(needed) + " of memory here, and " + bytes_text(available) +
                         " are available; simulate fewer ranks, or fewer bytes");
}

Measured measure(const NamedNetwork& network, const Case& what) {
  give_memory_back();
  require_memory(what);
  Measured result;
  result.what = what;
  if (has_data(what)) result.wrong = 0;
  const std::size_t before = resident_bytes();
  Values values(what, has_data(what));
  tutti::Settings settings;
  settings.log = tutti::LogLevel::quiet;
  settings.tuning = what.learns ? "at-once" : "static";
  Cluster cluster(network.network,
                  std::vector<int>(static_cast<std::size_t>(what.nodes), what.ranks_per_node),
                  settings, has_data(what));
  const auto algorithms = textbook_algorithms();
  const auto chosen = std::find_if(algorithms.begin(), algorithms.end(),
                                   [&](const Textbook& one) { return one.name == what.algorithm; });
  if (chosen == algorithms.end()) {
    run_library(cluster, result, values);
  } else {
    run_textbook(*chosen, cluster, result, values);
  }
  const std::size_t after = resident_bytes();
  result.memory_per_rank =
      (std::max(after, before) - before) / static_cast<std::size_t>(what.ranks());
  return result;
}

}  // namespace apps::simulator
