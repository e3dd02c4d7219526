// SPDX-License-Identifier: Apache-2.0
// Makes one table of several launches of collective-benchmark, each with another configuration of
// MPI: Tutti beside the best of them, size by size. scripts/mpirun/compare.sh runs both programs.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "apps/benchmark/launches.hpp"
#include "apps/benchmark/launches_report.hpp"
#include "support/command_line.hpp"
#include "support/output_file.hpp"

namespace {

namespace bench = apps::benchmark;
namespace po = boost::program_options;

constexpr int kDone = 0;
constexpr int kWrong = 3;

struct Options {
  std::vector<std::string> results, missing, notes;
  std::filesystem::path table, json, plot;
};

po::options_description describe(Options& options) {
  po::options_description all("Options", 100);
  all.add_options()("results", po::value(&options.results)->multitoken(),
                    "--json files of collective-benchmark, each with a --label: the launches of "
                    "one label are one configuration of MPI")(
      "missing", po::value(&options.missing),
      "text about a launch that has no results; repeatable")("note", po::value(&options.notes),
                                                             "text above the table; repeatable")(
      "table", po::value(&options.table), "file for the table, which is printed, too")(
      "json", po::value(&options.json), "file for every median")(
      "plot", po::value(&options.plot), "file for a picture (SVG): times, and ratios to the best");
  apps::add_common_options(all);
  return all;
}

bench::Launch load_launch(const std::string& path) {
  std::ifstream file(path);
  if (!file) apps::throw_usage_error("--results: " + path + ": " + std::strerror(errno));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    return bench::parse_launch(text);
  } catch (const tutti::Error& error) {
    throw tutti::Error(error.code(), "--results: " + path + ": " + error.what());
  }
}

int collective_compare(int argc, char** argv) {
  Options options;
  const auto values = apps::parse_command_line(argc, argv, describe(options));
  if (values.contains("help")) {
    std::cout << "collective-compare: one table of several launches of collective-benchmark.\n"
                 "Started alone, without mpirun. Exit code 3: a launch had wrong elements.\n\n"
              << describe(options);
    return kDone;
  }
  if (values.contains("version")) {
    std::cout << tutti::build_info();
    return kDone;
  }
  std::vector<bench::Launch> launches;
  for (const std::string& path : options.results) launches.push_back(load_launch(path));
  bench::Merged merged = bench::merge(launches);
  merged.missing.insert(merged.missing.begin(), options.missing.begin(), options.missing.end());
  const std::string table = bench::to_markdown(merged, options.notes);
  apps::write_file(options.table, table);
  apps::write_file(options.json, bench::to_json(merged, options.notes));
  apps::write_file(options.plot, bench::to_svg(merged));
  std::cout << table << std::flush;
  return merged.wrong == 0 ? kDone : kWrong;
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::run_program("collective-compare", [&] { return collective_compare(argc, argv); });
}
