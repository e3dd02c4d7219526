// SPDX-License-Identifier: Apache-2.0
// collective-benchmark: its table, its files, and its comparison with a baseline.
#include <algorithm>
#include <doctest/doctest.h>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tutti/error.hpp"

#include "apps/benchmark/baseline.hpp"
#include "apps/benchmark/report.hpp"
#include "support/text.hpp"
#include "tests/unit/benchmark_arguments.hpp"

namespace {

using namespace apps;
using namespace apps::benchmark;

Result result_of(const std::string& backend, std::size_t bytes, double p50) {
  return {.collective = "allreduce",
          .backend = backend,
          .buffers = backend == "tutti" ? "store" : "user",
          .bytes = bytes,
          .count = bytes / 4,
          .type = "float32",
          .redop = "sum",
          .iterations = 20,
          .time_us = {.p50 = p50, .avg = p50 * 1.5, .min = p50 / 2, .p99 = p50 * 2, .max = p50 * 3},
          .algbw_gbs = 1.5,
          .busbw_gbs = 1.5,
          .wrong = 0};
}

Row row_of(std::size_t bytes, double tutti_us, double mpi_us) {
  return {.bytes = bytes,
          .count = bytes / 4,
          .type = "float32",
          .redop = "sum",
          .results = {result_of("tutti", bytes, tutti_us), result_of("mpi", bytes, mpi_us)}};
}

std::vector<Row> two_rows() { return {row_of(8, 0.2, 0.4), row_of(1048576, 50.0, 200.0)}; }

Machine a_machine() {
  return {.hosts = {{"one<&>", 2}},
          .ranks = 2,
          .nodes = 1,
          .library = "tutti 0",
          .mpi = "Some MPI",
          .vector_instructions = "none",
          .processor = "a processor",
          .cache_bytes = 1 << 20,
          .algorithms = {"in the node (2 ranks): flat waits"},
          .started = "2025-01-31T12:00:00Z"};
}

constexpr MemorySpeed kMemory{.per_rank_gbs = 12.5, .total_gbs = 25.0, .array_bytes = 1 << 20};

}  // namespace

TEST_CASE("sizes and times are readable") {
  CHECK(apps::bytes_text(8) == "8 B");
  CHECK(apps::bytes_text(1024) == "1 KiB");
  CHECK(apps::bytes_text(1.5 * 1024 * 1024) == "1.5 MiB");
  CHECK(apps::bytes_text(128.0 * 1024 * 1024) == "128 MiB");
  CHECK(apps::time_text(0.174) == "0.17");
  CHECK(apps::time_text(123.44) == "123.4");
  CHECK(apps::time_text(64211.3) == "64211");
}

TEST_CASE("a row has both backends and the ratio, under names of the same width") {
  const Options options = test::parse({});
  const std::string line = table_row(two_rows()[1], options);
  CHECK(line.find("1048576      262144  float32   sum") != std::string::npos);
  CHECK(line.find("50.00") != std::string::npos);
  CHECK(line.find("200.0") != std::string::npos);
  CHECK(line.ends_with("      4.00\n"));
  const std::string head = table_head(options, a_machine());
  const std::string names = head.substr(head.rfind("#       size"));
  CHECK(names.find('\n') + 1 == line.size());
}

TEST_CASE("both kinds of tutti's memory have columns and ratios of their own") {
  const Options options = test::parse({"--buffers", "store,user"});
  Row row = row_of(8, 1.0, 6.0);
  Result user = result_of("tutti", 8, 2.0);
  user.buffers = "user";
  row.results.insert(row.results.begin() + 1, user);
  const std::string line = table_row(row, options);
  CHECK(line.ends_with("      6.00     3.00\n"));
  const std::string head = table_head(options, a_machine());
  CHECK(head.find("- tutti store -") < head.find("- tutti user -"));
  CHECK(head.find(" mpi/store mpi/user\n") != std::string::npos);
  CHECK(head.find("tutti's in store memory; tutti's in user memory; mpi's in user memory; ") !=
        std::string::npos);
}

TEST_CASE("the columns of times are those that are asked for") {
  const Options options = test::parse({"--times", "avg,min,max"});
  CHECK(table_head(options, a_machine()).find("      avg      min      max   algbw") !=
        std::string::npos);
  CHECK(table_row(row_of(8, 2.0, 4.0), options).find("     3.00     1.00     6.00") !=
        std::string::npos);
}

TEST_CASE("in place has columns and a ratio of its own") {
  const Options options = test::parse({"--place", "out,in"});
  Row row = row_of(8, 2.0, 4.0);
  for (const auto& [backend, p50] : {std::pair{"tutti", 1.0}, std::pair{"mpi", 5.0}}) {
    row.results.emplace_back(result_of(backend, 8, p50));
    row.results.back()->in_place = true;
  }
  const std::string head = table_head(options, a_machine());
  CHECK(head.find("- tutti, in place -") != std::string::npos);
  CHECK(head.find(" mpi/tutti mpi/tutti,in\n") != std::string::npos);
  CHECK(head.find("mpi's in user memory, in place; ") != std::string::npos);
  CHECK(table_row(row, options).ends_with("      2.00         5.00\n"));
}

TEST_CASE("several types, operations and roots stand in the head, and a root before its rows") {
  const Options options =
      test::parse({"--collective", "reduce", "-d", "half,float", "-o", "sum,max", "-r", "all"});
  CHECK(table_head(options, a_machine())
            .starts_with("# collective-benchmark: reduce, float16,float32 sum,max, root all\n"));
  Options pass = options;
  pass.root = 2;
  CHECK(pass_head(options, pass) == "# root 2\n");
  CHECK(pass_head(pass, pass).empty());
}

TEST_CASE("the label of a run is in its JSON, and where its tensors are") {
  const auto config_of = [](const Options& options) {
    return nlohmann::json::parse(to_json(two_rows(), options, a_machine(), kMemory)).at("config");
  };
  Options options = test::parse({});
  CHECK(config_of(options).at("label").is_null());
  CHECK(config_of(test::parse({"--label", "ob1"})).at("label") == "ob1");
  CHECK(config_of(options).at("device") == "cpu");
  options.on_gpu = true;
  CHECK(config_of(options).at("device") == "gpu");
}

TEST_CASE("the head says where the inputs are") {
  for (const char* mode : {"hot", "cold", "fresh"}) {
    const std::string head = table_head(test::parse({"--cache", mode}), a_machine());
    CHECK_MESSAGE(head.find(std::string("; ") + mode + ": inputs ") != std::string::npos, head);
  }
}

TEST_CASE("a backend that cannot run is n/a in its columns and in the ratio") {
  Row row = row_of(8, 1.0, 2.0);
  row.results[1].reset();
  const std::string line = table_row(row, test::parse({}));
  CHECK(line.find("1.00") != std::string::npos);
  CHECK(line.ends_with("    n/a    n/a       n/a\n"));  // busbw, #wrong, ratio
  CHECK(line.size() == table_row(two_rows()[0], test::parse({})).size());
}

TEST_CASE("the foot counts wrong elements") {
  const auto foot_of = [](const std::vector<Row>& rows) {
    return table_foot(rows, test::parse({}), a_machine(), kMemory);
  };
  auto rows = two_rows();
  CHECK(foot_of(rows).ends_with("# Out of bounds values : 0 OK\n"));
  rows[0].results[0]->wrong = 1;
  CHECK(foot_of(rows).ends_with("# Out of bounds values : 1 FAILED\n"));
  rows[0].results[0]->wrong = 3;
  rows[1].results[1]->wrong = 4;
  CHECK(foot_of(rows).ends_with("# Out of bounds values : 7 FAILED\n"));
}

TEST_CASE("the foot has the memory's speed and what it allows as busbw, if it was measured") {
  const auto foot_of = [](const std::optional<MemorySpeed>& memory, const Machine& machine) {
    return table_foot(two_rows(), test::parse({}), machine, memory);
  };
  CHECK(foot_of(std::nullopt, a_machine()) == "# Out of bounds values : 0 OK\n");
  const std::string foot = foot_of(kMemory, a_machine());
  CHECK(foot.find("12.5 GB/s per rank, 25.0 GB/s in all") != std::string::npos);
  CHECK(foot.find("as busbw : at most 6.25 GB/s") != std::string::npos);  // 2 bytes per byte
  CHECK(foot.find("the cache's speed") == std::string::npos);
  Machine alone = a_machine();
  alone.ranks = 1;
  CHECK(foot_of(kMemory, alone).find("busbw") == std::string::npos);
}

TEST_CASE("where the cache may hold the arrays, table and JSON say so") {
  MemorySpeed of_cache = kMemory;
  of_cache.exceeds_cache = false;
  const auto rows = two_rows();
  CHECK(
      table_foot(rows, test::parse({}), a_machine(), of_cache)
          .find("three arrays of 1 MiB per rank, which the last-level cache of 1 MiB may hold: it "
                "may be the cache's speed") != std::string::npos);
  const auto json = nlohmann::json::parse(to_json(rows, test::parse({}), a_machine(), of_cache));
  CHECK(json.at("environment").at("memory_gbs").at("exceeds_cache") == false);
  CHECK(json.at("environment").at("memory_gbs").at("busbw_limit") == 6.25);
}

TEST_CASE("the JSON has config, environment and a result per backend and size") {
  const auto rows = two_rows();
  const auto json = nlohmann::json::parse(to_json(rows, test::parse({}), a_machine(), kMemory));
  CHECK(json.at("config").at("cache") == "fresh");
  CHECK(json.at("environment").at("ranks") == 2);
  CHECK(json.at("environment").at("memory_gbs").at("per_rank") == 12.5);
  CHECK(nlohmann::json::parse(to_json(rows, test::parse({}), a_machine(), std::nullopt))
            .at("environment")
            .at("memory_gbs")
            .is_null());
  REQUIRE(json.at("results").size() == 4);
  const auto& result = json.at("results")[2];
  CHECK(result.at("collective") == "allreduce");
  CHECK(result.at("backend") == "tutti");
  CHECK(result.at("buffers") == "store");
  CHECK(result.at("bytes") == 1048576);
  CHECK(result.at("count") == 262144);
  CHECK(result.at("type") == "float32");
  CHECK(result.at("redop") == "sum");
  CHECK(result.at("time_us").at("p50") == 50.0);
  CHECK(result.at("time_us").at("avg") == 75.0);
  CHECK(result.at("in_place") == false);
  CHECK(result.at("root") == 0);
  CHECK(result.at("time_us").at("min") == 25.0);
  CHECK(result.at("time_us").at("p99") == 100.0);
  CHECK(result.at("time_us").at("max") == 150.0);
  CHECK(result.at("algbw_gbs") == 1.5);
  CHECK(result.at("busbw_gbs") == 1.5);
  CHECK(result.at("wrong") == 0);
}

TEST_CASE("the CSV has the same results, with a name per column") {
  const auto rows = two_rows();
  const std::string csv = to_csv(rows, test::parse({"--cache", "hot"}));
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 5);
  CHECK(csv.find("allreduce,mpi,user,8,2,float32,sum,20,0.4,0.2,0.8,1.2,1.5,1.5,0,hot,0,0,0.6\n") !=
        std::string::npos);
}

TEST_CASE("a baseline finds what is slower beyond the tolerance, and nothing else") {
  const Options options = test::parse({});
  const auto then = two_rows();
  const auto baseline =
      parse_baseline(to_json(then, options, a_machine(), kMemory), options, a_machine());
  REQUIRE(baseline.size() == 4);
  const std::vector now{row_of(8, 0.21, 0.4), row_of(1048576, 60.0, 100.0), row_of(16, 9.0, 9.0)};
  const Comparison strict = compare(now, baseline, 10.0);
  CHECK(strict.compared == 4);
  REQUIRE(strict.slower.size() == 1);
  CHECK(strict.slower[0] ==
        "tutti allreduce 1048576 B in store memory: 60.00 us, was 50.00 us (+20 %)");
  CHECK(compare(now, baseline, 1.0).slower.size() == 2);
  CHECK(compare(now, baseline, 25.0).slower.empty());
}

TEST_CASE("a result in place, or of another root, has another baseline") {
  const Options options = test::parse({"--place", "out,in"});
  std::vector<Row> rows = two_rows();
  rows[0].results[0]->in_place = true;
  rows[0].results[1]->root = 1;
  const auto baseline =
      parse_baseline(to_json(rows, options, a_machine(), kMemory), options, a_machine());
  CHECK(compare(two_rows(), baseline, 10.0).compared == 2);
  rows[0].results[0]->time_us.p50 *= 2.0;
  const Comparison comparison = compare(rows, baseline, 10.0);
  CHECK(comparison.compared == 4);
  CHECK(comparison.slower ==
        std::vector<std::string>{
            "tutti allreduce 8 B in store memory, in place: 0.40 us, was 0.20 us (+100 %)"});
}

TEST_CASE("a baseline of an earlier version is of root 0, out of place, one call at a time") {
  const Options options = test::parse({});
  auto json = nlohmann::json::parse(to_json(two_rows(), options, a_machine(), kMemory));
  json["config"].erase("calls_per_iteration");
  for (auto& result : json["results"]) {
    result.erase("root");
    result.erase("in_place");
  }
  CHECK(compare(two_rows(), parse_baseline(json.dump(), options, a_machine()), 10.0).compared == 4);
}

TEST_CASE("a baseline of another kind of run is refused") {
  const Options options = test::parse({});
  const auto rows = two_rows();
  const std::string text = to_json(rows, options, a_machine(), kMemory);
  const auto refused = [&](const std::string& json, const Options& now, const Machine& machine) {
    try {
      parse_baseline(json, now, machine);
      return std::string("none");
    } catch (const tutti::Error& error) {
      return std::string(error.what());
    }
  };
  Machine larger = a_machine();
  larger.ranks = 4;
  CHECK(refused(text, options, larger).find("ranks 2, this run has 4") != std::string::npos);
  CHECK(refused(text, test::parse({"--cache", "cold"}), a_machine()).find("--cache \"fresh\"") !=
        std::string::npos);
  CHECK(
      refused(text, test::parse({"-m", "4"}), a_machine()).find("--agg_iters 1, this run has 4") !=
      std::string::npos);
  const Options packed = test::parse({"--collective", "pushpull", "--compression", "2bit"});
  CHECK(refused(text, packed, a_machine()).find("--compression null, this run has \"2bit,") !=
        std::string::npos);
  const std::string of_packed = to_json(rows, packed, a_machine(), kMemory);
  CHECK(refused(of_packed, packed, a_machine()) == "none");
  CHECK(refused("{", options, a_machine()).find("not the --json") != std::string::npos);
  CHECK(refused("{}", options, a_machine()).find("not the --json") != std::string::npos);
}

TEST_CASE("rates have three digits, and columns stay apart") {
  CHECK(apps::rate_text(0.01234) == "0.0123");
  CHECK(apps::rate_text(4.2) == "4.20");
  CHECK(apps::rate_text(23.0) == "23.0");
  CHECK(apps::rate_text(99.97) == "100");
  CHECK(apps::rate_text(0.00025) == "0.0003");
  CHECK(apps::column("4096", 6) == "  4096");
  CHECK(apps::column("4096", 4) == " 4096");  // never joined to the column before it
}
