// SPDX-License-Identifier: Apache-2.0
// Measures how much of the pushes of a step is hidden behind its computing. Three kinds of steps
// take turns: pushes alone, a step that pushes at its end, and one that pushes each part as soon as
// it is computed. Or measures how long an urgent push takes while others are under way.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "apps/benchmark/result.hpp"
#include "support/command_line.hpp"
#include "support/idle_time.hpp"
#include "support/progress.hpp"
#include "support/text.hpp"
#include "support/urgent_push.hpp"

namespace {

namespace po = boost::program_options;
using tutti::KVStore;
using tutti::Tensor;

constexpr int kDone = 0;
constexpr int kWrong = 3;
constexpr int kWarmups = 2;  // the library learns about the machine and the link
constexpr double kMillisecond = 1e-3;

struct Options {
  std::string bytes = "1M";
  int keys = 20;
  double compute_ms = 0;  ///< 0: twice as long as the pushes
  int repeats = 10;
  std::string which = "overlap";
  std::string urgent = "100K";
  std::int64_t elements = 0;         ///< elements of a key, from `bytes`
  std::int64_t urgent_elements = 0;  ///< elements of the urgent key, from `urgent`
};

po::options_description describe(Options& options) {
  po::options_description all("Options", 100);
  apps::add_rows(
      all,
      {
          {"bytes", po::value(&options.bytes)->default_value("1M"),
           "of gradients (float32) in a step; with suffix as in 64M, 1GiB"},
          {"keys", po::value(&options.keys)->default_value(20),
           "equal parts, each computed and pushed"},
          {"compute", po::value(&options.compute_ms)->default_value(0),
           "milliseconds of a processor's time that a step computes for (0: twice what its pushes "
           "take)"},
          {"repeats", po::value(&options.repeats)->default_value(10),
           "timed turns, after two others"},
          {"case", po::value(&options.which)->default_value("overlap"), "overlap or priority"},
          {"urgent", po::value(&options.urgent)->default_value("100K"),
           "of the urgent key of --case priority"},
      });
  apps::add_common_options(all);
  return all;
}

std::string help() {
  Options options;
  std::ostringstream text;
  text << "overlap-benchmark: how much of the pushes of a step is hidden behind its computing.\n"
          "Start it with mpirun. In turn:\n"
          "  push   one push of all keys, and nothing else\n"
          "  sync   all parts are computed, then one push of all keys\n"
          "  async  each part is pushed as soon as it is computed, the last with the highest "
          "priority\n"
          "  idle   how long a push leaves a rank's share of the processors idle (/proc/stat): "
          "what can\n         be hidden. On a machine that is quiet otherwise\n"
          "With --case priority, a small urgent key is pushed ten times in each turn:\n"
          "  idle    nothing else is under way\n"
          "  behind  it overtakes a push of all others, which was made before\n"
          "  others  that push, with the urgent ones between; sync: a synchronous push of them\n"
          "Exit code 3: a wrong element.\n\n"
       << describe(options) << "\nEnvironment:\n"
       << tutti::Settings::help();
  return text.str();
}

std::int64_t elements_of(const char* option, const std::string& text, int keys) {
  std::size_t bytes = 0;
  try {
    bytes = tutti::parse_bytes(text);
  } catch (const tutti::Error& error) {
    apps::throw_usage_error(std::string(option) + ": " + error.what());
  }
  const std::size_t each = bytes / sizeof(float) / static_cast<std::size_t>(keys);
  if (each == 0) {
    apps::throw_usage_error(std::string(option) + " " + text +
                            ": expected at least one float32 (4 bytes) for each of " +
                            std::to_string(keys) + (keys == 1 ? " key" : " keys"));
  }
  return static_cast<std::int64_t>(each);
}

void check(Options& options) {
  if (options.keys < 1) apps::throw_usage_error("--keys: expected at least 1");
  if (options.repeats < 1) apps::throw_usage_error("--repeats: expected at least 1");
  if (!std::isfinite(options.compute_ms) || options.compute_ms < 0) {
    apps::throw_usage_error("--compute: expected milliseconds, at least 0");
  }
  if (options.which != "overlap" && options.which != "priority") {
    apps::throw_usage_error("--case " + options.which + ": expected overlap or priority");
  }
  options.elements = elements_of("--bytes", options.bytes, options.keys);
  options.urgent_elements = elements_of("--urgent", options.urgent, 1);
}

/// Uses a processor for so long, not counting the time that other threads take of it meanwhile.
void compute(double seconds) {
  const auto used = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double end = used() + seconds;
  volatile float value = 1;
  while (used() < end) {
    for (int i = 0; i < 1000; ++i) value = value * 0.5F + 1;
  }
}

class Steps {
 public:
  Steps(tutti::Communicator& world, const Options& options)
      : world_(world),
        kv_(KVStore::create(world)),
        compute_seconds_(options.compute_ms * kMillisecond) {
    for (int key = 0; key < options.keys; ++key) {
      keys_.emplace_back(key);
      gradients_.push_back(kv_.allocate({options.elements}));
      kv_.init(key, Tensor::zeros({options.elements}));
    }
  }

  void push() { kv_.push(keys_, gradients_); }
  void sync() {
    for (std::size_t part = 0; part < keys_.size(); ++part) compute(part_seconds());
    push();
  }
  void async() {
    std::vector<tutti::Pending> pending;
    for (std::size_t part = 0; part < keys_.size(); ++part) {
      compute(part_seconds());
      pending.push_back(
          kv_.push_async(keys_[part], gradients_[part], {.priority = static_cast<int>(part)}));
    }
    for (const tutti::Pending& push : pending) push.wait();
  }

  /// Runs a step; returns its time, the longest over the ranks, measured from a common barrier on.
  /// Counts elements that are not the sum over the ranks. `idle`, if not null, measures the step,
  /// too. Collective.
  double seconds_of(void (Steps::*step)(), apps::IdleTime* idle = nullptr) {
    ++turn_;
    for (Tensor& gradient : gradients_) gradient.fill(turn_ % 100 + world_.rank());
    world_.barrier();
    if (idle != nullptr) idle->begin();
    const apps::Stopwatch watch;
    (this->*step)();
    double seconds = watch.seconds();
    if (idle != nullptr) idle->end(seconds);
    world_.allreduce(tutti::view(&seconds, {1}), tutti::ReduceOp::max);
    const int ranks = world_.size();
    const int expected = ranks * (turn_ % 100) + ranks * (ranks - 1) / 2;
    const auto sum = static_cast<float>(expected);
    for (const tutti::Key& key : keys_) {
      const auto values = kv_.view(key).values<float>();
      wrong_ += std::ranges::count_if(values, [&](float value) { return value != sum; });
    }
    return seconds;
  }

  void set_compute_seconds(double seconds) { compute_seconds_ = seconds; }
  [[nodiscard]] double compute_seconds() const { return compute_seconds_; }
  /// The number of wrong elements on all ranks. Collective.
  std::int64_t wrong() {
    world_.allreduce(tutti::view(&wrong_, {1}));
    return wrong_;
  }

 private:
  [[nodiscard]] double part_seconds() const {
    return compute_seconds_ / static_cast<double>(keys_.size());
  }

  tutti::Communicator& world_;
  KVStore kv_;
  double compute_seconds_;
  std::vector<tutti::Key> keys_;
  std::vector<Tensor> gradients_;
  int turn_ = 0;
  std::int64_t wrong_ = 0;
};

struct Times {
  std::vector<double> push, sync, async;
};

double p50(std::vector<double> values) {
  std::ranges::sort(values);
  return apps::benchmark::percentile(values, 50.0);
}

/// A line of results: the time by which the step became shorter, as a part of the time that could
/// be hidden, which is that of the pushes, or all of the computing.
std::string line(const std::string& name, double push, double computing, double sync,
                 double async) {
  const double hidden = (sync - async) / std::min(push, computing);
  return apps::format("%-8s %9.2f %9.2f %9.2f %9.2f %8.0f %%\n", name.c_str(), push / kMillisecond,
                      computing / kMillisecond, sync / kMillisecond, async / kMillisecond,
                      100 * hidden);
}

/// A line about idle time. At most the time in which a push leaves the processors idle can be
/// hidden: the kernel's time for messages is taken from the computing, too.
std::string line_of_idle(double idle, double computing, double saved) {
  if (idle < 0) return "idle: /proc/stat cannot be read\n";
  const double hideable = std::min(idle, computing);
  return apps::format("idle     %9.2f of a push; the step became shorter by %.0f %% of it\n",
                      idle / kMillisecond, hideable <= 0 ? 0 : 100 * saved / hideable);
}

/// Prints the text on rank 0.
void say(const tutti::Communicator& world, const std::string& text) {
  if (world.rank() == 0) std::cout << text << std::flush;
}

std::string heading(const tutti::Communicator& world, const Options& options) {
  return apps::bytes_text(static_cast<double>(options.elements) * options.keys * sizeof(float)) +
         " in " + std::to_string(options.keys) + (options.keys == 1 ? " key, " : " keys, ") +
         std::to_string(world.size()) + (world.size() == 1 ? " rank" : " ranks") + " on " +
         std::to_string(world.num_nodes()) + (world.num_nodes() == 1 ? " node" : " nodes") +
         "; milliseconds\n";
}

std::string name_of(int repeat) { return repeat > 0 ? std::to_string(repeat) : "warm-up"; }

std::int64_t measure_overlap(tutti::Communicator& world, const Options& options) {
  Steps steps(world, options);
  say(world,
      heading(world, options) + "repeat        push   compute      sync     async    hidden\n");
  Times times;
  apps::IdleTime idle(world);
  for (int repeat = 1 - kWarmups; repeat <= options.repeats; ++repeat) {
    const double push = steps.seconds_of(&Steps::push, repeat > 0 ? &idle : nullptr);
    if (options.compute_ms == 0 && repeat <= 0) steps.set_compute_seconds(2 * push);
    const double sync = steps.seconds_of(&Steps::sync);
    const double async = steps.seconds_of(&Steps::async);
    say(world, line(name_of(repeat), push, steps.compute_seconds(), sync, async));
    if (repeat <= 0) continue;
    times.push.push_back(push);
    times.sync.push_back(sync);
    times.async.push_back(async);
  }
  const double sync = p50(times.sync);
  const double async = p50(times.async);
  say(world, line("p50", p50(times.push), steps.compute_seconds(), sync, async));
  say(world, line_of_idle(idle.per_stretch(), steps.compute_seconds(), sync - async));
  return steps.wrong();
}

std::string line(const std::string& name, const apps::UrgentTimes& times) {
  return apps::format("%-8s %9.2f %9.2f %9.2f %9.2f %9.2f\n", name.c_str(),
                      times.idle / kMillisecond, p50(times.behind) / kMillisecond,
                      std::ranges::max(times.behind) / kMillisecond, times.others / kMillisecond,
                      times.push / kMillisecond);
}

/// Measures urgent pushes. The last line has medians, but the longest time of all pushes behind
/// others.
std::int64_t measure_priority(tutti::Communicator& world, const Options& options) {
  apps::UrgentPush pushes(world, options.keys, options.elements, options.urgent_elements);
  say(world,
      heading(world, options) + "repeat        idle    behind   longest    others      sync\n");
  apps::UrgentTimes all;
  Times medians;
  for (int repeat = 1 - kWarmups; repeat <= options.repeats; ++repeat) {
    const apps::UrgentTimes times = pushes.measure();
    say(world, line(name_of(repeat), times));
    if (repeat <= 0) continue;
    medians.push.push_back(times.idle);
    medians.async.push_back(times.others);
    medians.sync.push_back(times.push);
    std::ranges::copy(times.behind, std::back_inserter(all.behind));
  }
  all.idle = p50(medians.push);
  all.others = p50(medians.async);
  all.push = p50(medians.sync);
  say(world, line("all", all));
  return pushes.wrong();
}

int overlap_benchmark(int argc, char** argv) {
  tutti::Communicator world = tutti::Communicator::world();
  Options options;
  std::string shown;
  world.agree([&] {
    const auto values = apps::parse_command_line(argc, argv, describe(options));
    if (values.contains("help")) shown = help();
    if (values.contains("version")) shown = tutti::build_info();
    if (shown.empty()) check(options);
  });
  say(world, shown);
  if (!shown.empty()) return kDone;
  const std::int64_t wrong = options.which == "overlap" ? measure_overlap(world, options)
                                                        : measure_priority(world, options);
  say(world, "wrong elements: " + std::to_string(wrong) + "\n");
  return wrong == 0 ? kDone : kWrong;
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::run_program("overlap-benchmark", [&] { return overlap_benchmark(argc, argv); });
}
