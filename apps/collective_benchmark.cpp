// SPDX-License-Identifier: Apache-2.0
// Times collectives of Tutti and of MPI side by side, size by size, and checks every result.
//
// The facts that decide the exit code are the same on all ranks: times are the longest over the
// ranks, wrong elements their sum, and rank 0's verdict is shared.
#include <iostream>
#include <optional>
#include <unistd.h>
#include <vector>

#include <tutti/mpi.hpp>
#include <tutti/tutti.hpp>

#include "apps/benchmark/backends.hpp"
#include "apps/benchmark/baseline.hpp"
#include "apps/benchmark/machine.hpp"
#include "apps/benchmark/report.hpp"
#include "apps/benchmark/runner.hpp"
#include "support/output_file.hpp"
#include "support/plot.hpp"
#include "support/text.hpp"

namespace {

namespace bench = apps::benchmark;

constexpr int kDone = 0;
constexpr int kWrongOrSlow = 3;

/// Rank 0's output: the table on standard output, and one line of progress where a person watches
/// standard error.
class Console {
 public:
  explicit Console(bool is_root)
      : is_root_(is_root), watched_(is_root && isatty(STDERR_FILENO) != 0) {}

  void say(const std::string& text) const {
    if (watched_) std::cerr << "\r\x1b[K" << std::flush;
    if (is_root_) std::cout << text << std::flush;
  }
  void show_progress(const std::string& text) const {
    if (watched_) std::cerr << '\r' << text << "\x1b[K" << std::flush;
  }

 private:
  bool is_root_;
  bool watched_;
};

/// The world, split into nodes as the command line asks.
tutti::Communicator split_world(tutti::Communicator world, tutti::Settings settings,
                                const bench::Options& options) {
  if (options.ranks_per_node.empty()) return world;
  settings.ranks_per_node = options.ranks_per_node;
  return tutti::Communicator::world(settings);
}

/// The checks that a run was asked for and fails, line by line. Rank 0 alone.
std::vector<std::string> failed_checks(std::span<const bench::Row> rows,
                                       const bench::Options& options,
                                       std::span<const bench::BaselineEntry> baseline) {
  std::vector<std::string> lines;
  if (const auto wrong = bench::count_wrong(rows); wrong > 0) {
    lines.push_back(std::to_string(wrong) + " elements are wrong");
  }
  const std::string kind = options.on_gpu ? "gpu" : options.buffers.front();
  const bool in_place = options.places.front() == "in";
  const bench::Result* const largest = bench::find_result(rows.back(), {"tutti", kind, in_place});
  if (largest != nullptr && largest->busbw_gbs < options.min_busbw) {
    lines.push_back(apps::format("busbw at %zu B is %.3g GB/s, below --min-busbw %g",
                                 largest->bytes, largest->busbw_gbs, options.min_busbw));
  }
  if (options.baseline.empty()) return lines;
  const bench::Comparison comparison = bench::compare(rows, baseline, options.tolerance);
  if (comparison.compared == 0) lines.emplace_back("the baseline has none of these results");
  for (const std::string& slower : comparison.slower) {
    lines.push_back("slower than the baseline: " + slower);
  }
  return lines;
}

/// One type, operation and root, with its sizes.
struct Pass {
  bench::Options options;
  std::vector<bench::Layout> layouts;
};

/// Measures size by size, and prints each row when it is complete. Collective.
void measure_pass(bench::Runner& runner, const Pass& pass, const Console& console,
                  std::vector<bench::Row>& rows) {
  for (std::size_t i = 0; i < pass.layouts.size(); ++i) {
    const bench::Layout& layout = pass.layouts[i];
    console.show_progress(apps::format("measuring %s, %zu of %zu",
                                       apps::bytes_text(static_cast<double>(layout.bytes)).c_str(),
                                       i + 1, pass.layouts.size()));
    rows.push_back(runner.measure(layout));
    console.say(bench::table_row(rows.back(), pass.options));
  }
}

int collective_benchmark(int argc, char** argv) {
  tutti::Settings settings = tutti::Settings::from_environment();
  // A job that learns would do so in its first hundreds of calls; here it learns while each size
  // warms up.
  if (settings.tuning == "learn") settings.tuning = "at-once";
  tutti::Communicator world = tutti::Communicator::world(settings);
  const Console console(world.rank() == 0);

  // Steps that may fail on one rank alone run inside agree: then all ranks end alike, and one
  // reports.
  bench::Options options;
  world.agree([&] { options = bench::parse_options(argc, argv); });
  if (options.help || options.version) {
    console.say(options.help ? bench::help() : tutti::build_info());
    return kDone;
  }
  world = split_world(world, settings, options);
  const MPI_Comm comm = tutti::duplicate_world();
  bench::Machine machine = bench::describe_machine(world, comm);
  machine.tuning = settings.tuning;
  std::vector<Pass> passes;
  std::vector<bench::BaselineEntry> baseline;
  world.agree([&] {
    for (const bench::Options& pass : bench::passes(options, world.size())) {
      passes.push_back({pass, bench::plan(pass, world.size())});
    }
    if (world.rank() != 0) return;  // rank 0 writes the files
    if (!options.baseline.empty()) baseline = bench::load_baseline(options, machine);
    bench::check_output_files(options);
  });

  console.say(bench::table_head(options, machine));
  std::vector<bench::Row> rows;
  bool is_about_memory = false;
  for (const Pass& pass : passes) {
    console.say(bench::pass_head(options, pass.options));
    bench::Runner runner(world, comm, pass.options, machine, settings.timeout);
    measure_pass(runner, pass, console, rows);
    is_about_memory = is_about_memory || bench::is_about_memory(options, pass.layouts);
  }
  std::optional<bench::MemorySpeed> memory;
  if (is_about_memory) {
    console.show_progress("measuring the memory's own speed");
    memory = bench::measure_memory(
        world, comm, bench::plan_memory_probe(machine.cache_bytes, world.local_size()));
  }
  console.say(bench::table_foot(rows, options, machine, memory));

  std::uint64_t failures = 0;
  world.agree([&] {
    if (world.rank() != 0) return;
    apps::write_file(options.json, bench::to_json(rows, options, machine, memory));
    apps::write_file(options.csv, bench::to_csv(rows, options));
    apps::draw_plot(options.plot, bench::to_json(rows, options, machine, memory));
    for (const std::string& failure : failed_checks(rows, options, baseline)) {
      console.say("# FAILED: " + failure + "\n");
      ++failures;
    }
  });
  return bench::sum_over_ranks(comm, failures) == 0 ? kDone : kWrongOrSlow;
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::run_program("collective-benchmark",
                            [&] { return collective_benchmark(argc, argv); });
}
