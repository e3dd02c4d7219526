// SPDX-License-Identifier: Apache-2.0
// What groups of ranks cost each other: the same pushes of two groups, one group after the other
// and both at once, in turn. When both push at once, a cache has the data of two groups to hold. So
// the groups also push two values in turn, one group after the other: as much data, and no other
// group beside.
#include <algorithm>
#include <array>
#include <chrono>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "support/command_line.hpp"

namespace {

namespace po = boost::program_options;
using tutti::Communicator;
using tutti::KVStore;
using tutti::Tensor;

constexpr int kDone = 0;
constexpr int kWrong = 3;
constexpr int kGroups = 2;
constexpr int kWarmups = 3;

struct Options {
  std::string bytes = "1M";
  int calls = 100;
  int repeats = 11;
  std::int64_t elements = 0;  ///< from `bytes`
};

po::options_description describe(Options& options) {
  po::options_description all("Options", 100);
  all.add_options()("bytes", po::value(&options.bytes)->default_value("1M"),
                    "of a push (float32); with suffix as in 64M, 1GiB")(
      "calls", po::value(&options.calls)->default_value(100), "pushes of a group in each turn")(
      "repeats", po::value(&options.repeats)->default_value(11), "timed turns, after three others");
  apps::add_common_options(all);
  return all;
}

std::string help() {
  Options options;
  std::ostringstream text;
  text
      << "groups-benchmark: two groups, each of half of the ranks, push one after the other,\n"
         "with one value and with two in turn, and both at once. Start it with mpirun, with 2, 4,\n"
         "6, ... ranks. Exit code 3: a wrong element.\n\n"
      << describe(options);
  return text.str();
}

void check(Options& options, int ranks) {
  if (options.calls < 1) apps::throw_usage_error("--calls: expected at least 1");
  if (options.repeats < 1) apps::throw_usage_error("--repeats: expected at least 1");
  std::size_t bytes = 0;
  try {
    bytes = tutti::parse_bytes(options.bytes);
  } catch (const tutti::Error& error) {
    apps::throw_usage_error(std::string("--bytes: ") + error.what());
  }
  if (bytes < sizeof(float)) {
    apps::throw_usage_error("--bytes " + options.bytes + ": expected at least 4, one float32");
  }
  options.elements = static_cast<std::int64_t>(bytes / sizeof(float));
  if (ranks % kGroups != 0) {
    throw tutti::Error(tutti::ErrorCode::invalid_argument,
                       "2 groups of " + std::to_string(ranks) +
                           " ranks: expected an even number; start another number of ranks");
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// One rank's end of its group, and of the job.
class Groups {
 public:
  Groups(Communicator& world, const Options& options)
      : world_(world),
        options_(options),
        own_(world.rank() * kGroups / world.size()),
        group_(world.split(own_)),
        kv_(KVStore::create(group_)),
        values_{group_.allocate({options.elements}), group_.allocate({options.elements})} {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      kv_.init(kKeys[i], Tensor::zeros({options.elements}));
    }
    renew();
    push_all(values_.size());
  }

  /// The next pushes are of other values than the last, so that one that is lost is seen.
  void renew() {
    ++turn_;
    for (Tensor& value : values_) value.fill(turn_ * kGroups + own_);
  }

  /// Milliseconds from when all ranks begin until all have ended, the longest of all ranks'.
  double one_after_the_other(std::size_t values) {
    return timed([&] {
      for (int group = 0; group < kGroups; ++group) {
        if (group == own_) push_all(values);
        world_.barrier();
      }
    });
  }
  double both_at_once() {
    return timed([&] {
      push_all(1);
      world_.barrier();
    });
  }

  /// On all ranks together.
  std::int64_t wrong_elements(std::size_t num_keys) {
    const auto expected = static_cast<float>((turn_ * kGroups + own_) * group_.size());
    Tensor pulled = Tensor::zeros({options_.elements});
    std::int64_t found = 0;
    for (std::size_t i = 0; i < num_keys; ++i) {
      kv_.pull(kKeys[i], pulled);
      const auto values = pulled.values<float>();
      found += std::count_if(values.begin(), values.end(),
                             [&](float value) { return value != expected; });
    }
    Tensor wrong = Tensor::from(std::vector<std::int64_t>{found});
    world_.allreduce(wrong);
    return wrong.values<std::int64_t>().front();
  }

 private:
  static constexpr std::array kKeys = {1, 2};

  void push_all(std::size_t values) {
    for (int call = 0; call < options_.calls; ++call) {
      const std::size_t which = static_cast<std::size_t>(call) % values;
      kv_.push(kKeys[which], values_[which]);
    }
  }
  template <class Body>
  double timed(Body&& body) {
    using Clock = std::chrono::steady_clock;
    world_.barrier();
    const auto begin = Clock::now();
    body();
    Tensor time = Tensor::from(std::vector<double>{
        std::chrono::duration<double, std::milli>(Clock::now() - begin).count()});
    world_.allreduce(time, tutti::ReduceOp::max);
    return time.values<double>().front();
  }

  Communicator& world_;
  const Options& options_;
  int own_;
  Communicator group_;
  KVStore kv_;
  std::array<Tensor, 2> values_;
  int turn_ = 0;  ///< of values
};

int groups_benchmark(int argc, char** argv) {
  Communicator world = Communicator::world();
  Options options;
  std::string shown;
  world.agree([&] {
    const auto values = apps::parse_command_line(argc, argv, describe(options));
    if (values.contains("help")) shown = help();
    if (values.contains("version")) shown = tutti::build_info();
    if (shown.empty()) check(options, world.size());
  });
  if (!shown.empty()) {
    if (world.rank() == 0) std::cout << shown << std::flush;
    return kDone;
  }
  Groups groups(world, options);
  std::vector<double> apart;
  std::vector<double> two_values;
  std::vector<double> together;
  std::int64_t wrong = 0;
  for (int turn = -kWarmups; turn < options.repeats; ++turn) {
    groups.renew();
    const double one_by_one = groups.one_after_the_other(/*values=*/1);
    wrong += groups.wrong_elements(1);
    groups.renew();
    const double of_two = groups.one_after_the_other(/*values=*/2);
    wrong += groups.wrong_elements(options.calls > 1 ? 2 : 1);
    groups.renew();
    const double at_once = groups.both_at_once();
    wrong += groups.wrong_elements(1);
    if (turn < 0) continue;
    apart.push_back(one_by_one);
    two_values.push_back(of_two);
    together.push_back(at_once);
  }
  if (world.rank() == 0) {
    std::cout << "2 groups of " << world.size() / kGroups << ", " << options.calls << " pushes of "
              << options.elements * 4 << " bytes in each; milliseconds, p50\n"
              << std::fixed << std::setprecision(3) << "one after the other " << median(apart)
              << "\nof two values in turn " << median(two_values) << "\nboth at once "
              << median(together) << "\nratio " << median(apart) / median(together)
              << ", of two values " << median(two_values) / median(together)
              << "\nwrong elements: " << wrong << '\n';
  }
  return wrong == 0 ? kDone : kWrong;
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::run_program("groups-benchmark", [&] { return groups_benchmark(argc, argv); });
}
