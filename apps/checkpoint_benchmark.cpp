// SPDX-License-Identifier: Apache-2.0
// Measures how fast a store is saved and loaded, and how fast the disk writes one plain file. Disk,
// save and load take turns, so that a disk that becomes slower or faster does so for all of them.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "apps/benchmark/result.hpp"
#include "support/checkpoint_speed.hpp"
#include "support/progress.hpp"
#include "support/text.hpp"

namespace {

namespace fs = std::filesystem;
using apps::checkpoint::Options;
using apps::checkpoint::Weights;

constexpr int kDone = 0;
constexpr int kWrong = 3;
constexpr int kWarmups = 2;  // after them there are two checkpoints, and every save removes one

/// A folder of rank 0's that is removed with this object.
class Folder {
 public:
  Folder(tutti::Communicator& world, const fs::path& directory)
      : path_(directory / "checkpoint-benchmark.tmp") {
    world.agree([&] {
      if (world.rank() != 0) return;
      std::error_code error;
      is_mine_ = fs::create_directory(path_, error);
      if (is_mine_) return;
      const std::string reason =
          error ? error.message() : "it exists, of a run that goes on or was killed; remove it";
      throw tutti::Error(tutti::ErrorCode::io, "cannot make " + path_.string() + ": " + reason);
    });
  }
  ~Folder() {
    std::error_code ignored;
    if (is_mine_) fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  bool is_mine_ = false;
};

template <class Value>
Value longest(tutti::Communicator& world, Value value) {
  world.allreduce(tutti::view(&value, {1}), tutti::ReduceOp::max);
  return value;
}

/// The time of a collective call: the longest over the ranks, measured from a common barrier on.
/// Collective.
double seconds_of(tutti::Communicator& world, const std::function<void()>& call) {
  world.barrier();
  const apps::Stopwatch time;
  call();
  return longest(world, time.seconds());
}

/// The time of rank 0's own write, while the others wait. Collective.
double seconds_of_disk(tutti::Communicator& world, const fs::path& path, std::size_t bytes) {
  double seconds = 0;
  world.agree([&] {
    if (world.rank() == 0) seconds = apps::checkpoint::seconds_to_write(path, bytes);
  });
  return longest(world, seconds);
}

struct Once {
  double disk, save, load, stop, async;
};

struct Seconds {
  std::vector<double> disk, save, load, stop, async;
};

double p50(std::vector<double> values) {
  std::ranges::sort(values);
  return apps::benchmark::percentile(values, 50.0);
}

std::string line(const std::string& name, std::size_t bytes, const Once& once) {
  const auto rate = [&](double seconds) { return static_cast<double>(bytes) / seconds / 1e9; };
  constexpr double kMilli = 1e3;
  return apps::format("%-8s %9.2f %9.2f %9.2f %11.2f %9.2f %9.1f\n", name.c_str(), rate(once.disk),
                      rate(once.save), rate(once.load), once.disk / once.save, rate(once.async),
                      once.stop * kMilli);
}

int checkpoint_benchmark(int argc, char** argv) {
  tutti::Communicator world = tutti::Communicator::world();
  const auto say = [&](const std::string& text) {
    if (world.rank() == 0) std::cout << text << std::flush;
  };
  // Steps that may fail on one rank alone run inside agree: then all ranks end alike, and one
  // reports.
  Options options;
  world.agree([&] { options = apps::checkpoint::parse_options(argc, argv); });
  if (options.help || options.version) {
    say(options.help ? apps::checkpoint::help() : tutti::build_info());
    return kDone;
  }
  tutti::KVStore kv = tutti::KVStore::create(world);
  const Weights weights(kv, options);
  const Folder folder(world, options.directory);
  say(apps::bytes_text(static_cast<double>(weights.bytes())) + " in " +
      std::to_string(options.keys) + " keys, " + std::to_string(world.size()) +
      (world.size() == 1 ? " rank, to " : " ranks, to ") + folder.path().string() + "; GB/s\n" +
      "repeat        disk      save      load   save/disk     async  stop, ms\n");

  Seconds seconds;
  std::int64_t wrong = 0;
  for (int repeat = 1 - kWarmups; repeat <= options.repeats; ++repeat) {
    const double disk = seconds_of_disk(world, folder.path() / "plain", weights.bytes());
    const double save = seconds_of(world, [&] { kv.save(folder.path() / "store"); });
    double stop = 0;
    const double async = seconds_of(world, [&] {
      const apps::Stopwatch time;
      const tutti::Pending pending = kv.save_async(folder.path() / "async");
      stop = time.seconds();
      pending.wait();
    });
    stop = longest(world, stop);
    weights.forget(kv);
    const double load = seconds_of(world, [&] { kv.load(folder.path() / "store"); });
    wrong = std::max(wrong, weights.wrong(kv));
    const bool counts = repeat > 0;
    say(line(counts ? std::to_string(repeat) : "warm-up", weights.bytes(),
             {disk, save, load, stop, async}));
    if (!counts) continue;
    seconds.disk.push_back(disk);
    seconds.save.push_back(save);
    seconds.load.push_back(load);
    seconds.stop.push_back(stop);
    seconds.async.push_back(async);
  }
  say(line("p50", weights.bytes(),
           {p50(seconds.disk), p50(seconds.save), p50(seconds.load), p50(seconds.stop),
            p50(seconds.async)}));
  wrong = longest(world, wrong);
  say("wrong elements after a load: " + std::to_string(wrong) + "\n");
  return wrong == 0 ? kDone : kWrong;
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::run_program("checkpoint-benchmark",
                            [&] { return checkpoint_benchmark(argc, argv); });
}
