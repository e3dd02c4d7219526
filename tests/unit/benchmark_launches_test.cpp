// SPDX-License-Identifier: Apache-2.0
// Several launches of collective-benchmark as one table.
#include <cmath>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/error.hpp"

#include "apps/benchmark/launches.hpp"
#include "apps/benchmark/launches_report.hpp"
#include "apps/benchmark/report.hpp"
#include "tests/unit/benchmark_arguments.hpp"

namespace {

using namespace apps::benchmark;

constexpr std::size_t kMiB = std::size_t{1} << 20;

Launch launch_of(const std::string& configuration, std::vector<Measured> results) {
  return {.configuration = configuration,
          .conditions = {{"collective", "allreduce"},
                         {"type", "float32"},
                         {"redop", "sum"},
                         {"cache", "fresh"},
                         {"model", "none"},
                         {"ranks", "2"},
                         {"nodes", "1"},
                         {"hosts", "a<b (2)"}},
          .started = "2025-01-31T12:00:00Z",
          .results = std::move(results)};
}

/// Tutti in both memories, and MPI.
std::vector<Measured> times(std::size_t bytes, double store, double user, double mpi) {
  return {{"tutti", "store", bytes, store},
          {"tutti", "user", bytes, user},
          {"mpi", "user", bytes, mpi}};
}

Result result_of(const char* backend, const char* buffers, double p50) {
  return {.collective = "allreduce",
          .backend = backend,
          .buffers = buffers,
          .bytes = 8,
          .count = 2,
          .type = "float32",
          .redop = "sum",
          .iterations = 20,
          .time_us = {.p50 = p50, .min = p50, .p99 = p50, .max = p50},
          .wrong = 0};
}

/// A --json file's text, with a label and both kinds of memory.
std::string file_of(const char* label, const std::optional<std::uint64_t>& wrong = 0) {
  Row row{.bytes = 8, .count = 2, .type = "float32", .redop = "sum", .results = {}};
  row.results = {result_of("tutti", "store", 1.0), result_of("tutti", "user", 2.0),
                 result_of("mpi", "user", 6.0)};
  row.results[2]->wrong = wrong;
  Machine machine;
  machine.hosts = {{"one", 2}};
  machine.ranks = 2;
  const Options options = test::parse({"--buffers", "store,user", "--label", label});
  return to_json(std::vector{row}, options, machine, std::nullopt);
}

std::string merge_refusal(const std::vector<Launch>& launches) {
  try {
    merge(launches);
    return "none";
  } catch (const tutti::Error& error) {
    CHECK(error.code() == tutti::ErrorCode::invalid_argument);
    return error.what();
  }
}

std::string parse_refusal(const std::string& text) {
  try {
    parse_launch(text);
    return "none";
  } catch (const tutti::Error& error) {
    CHECK(error.code() == tutti::ErrorCode::invalid_argument);
    return error.what();
  }
}

bool has(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  CHECK_MESSAGE(found, text);
  return found;
}

}  // namespace

TEST_CASE("the median is the middle value, or the mean of the two") {
  CHECK(median({5.0}) == 5.0);
  CHECK(median({9.0, 1.0, 2.0}) == 2.0);
  CHECK(median({4.0, 1.0, 2.0, 100.0}) == 3.0);
}

TEST_CASE("Tutti's time is the median over all launches, MPI's over those of a configuration") {
  const std::vector<Launch> launches{
      launch_of("default", times(8, 1.0, 2.0, 10.0)), launch_of("ob1", times(8, 3.0, 4.0, 7.0)),
      launch_of("default", times(8, 2.0, 6.0, 4.0)),  launch_of("ob1", times(8, 9.0, 9.0, 8.0)),
      launch_of("default", times(8, 2.5, 5.0, 12.0)), launch_of("ob1", times(8, 2.5, 5.0, 6.0))};
  const Merged merged = merge(launches);
  REQUIRE(merged.lines.size() == 1);
  const Line& line = merged.lines[0];
  CHECK(*line.store_us == 2.5);
  CHECK(*line.user_us == 5.0);
  REQUIRE(line.mpi.size() == 2);
  CHECK(line.mpi[0].configuration == "default");
  CHECK(line.mpi[0].p50_us == 10.0);  // the fastest single launch, 4.0, is no configuration's
  CHECK(line.mpi[1].p50_us == 7.0);
  CHECK(line.best()->configuration == "ob1");
  REQUIRE(merged.configurations.size() == 2);
  CHECK(merged.configurations[1].name == "ob1");
  CHECK(merged.configurations[1].launches == 3);
  CHECK(merged.missing.empty());
}

TEST_CASE("a ratio is of one launch, and the median over those of the best configuration") {
  // The machine is four times slower in the first round, and the median of Tutti is of the second.
  const std::vector<Launch> launches{
      launch_of("ob1", times(8, 4.0, 8.0, 12.0)), launch_of("default", times(8, 4.0, 8.0, 40.0)),
      launch_of("ob1", times(8, 1.0, 2.0, 5.0)),  launch_of("default", times(8, 1.0, 2.0, 10.0)),
      launch_of("ob1", times(8, 1.0, 4.0, 4.0)),  launch_of("default", times(8, 1.0, 2.0, 10.0))};
  const Line line = merge(launches).lines.at(0);
  CHECK(*line.store_us == 1.0);
  CHECK(line.best()->configuration == "ob1");
  CHECK(line.best()->p50_us == 5.0);
  CHECK(*line.store_ratio() == 4.0);  // of 3, 5 and 4; the medians' would be 5
  CHECK(*line.user_ratio() == 1.5);   // of 1.5, 2.5 and 1
  CHECK(*line.mpi[1].store_ratio == 10.0);
  CHECK(*line.mpi[1].user_ratio == 5.0);
}

TEST_CASE("a launch without one of the two has no part in the ratio") {
  const Merged merged = merge(std::vector{launch_of("ob1", times(8, 1.0, 2.0, 4.0)),
                                          launch_of("ob1", {{"tutti", "store", 8, 100.0}}),
                                          launch_of("ob1", {{"mpi", "user", 8, 4.0}})});
  CHECK(*merged.lines[0].store_ratio() == 4.0);
  CHECK(*merged.lines[0].user_ratio() == 2.0);
  const Merged apart = merge(std::vector{launch_of("ob1", {{"tutti", "store", 8, 1.0}}),
                                         launch_of("ob1", {{"mpi", "user", 8, 4.0}})});
  CHECK(apart.lines[0].best() != nullptr);
  CHECK_FALSE(apart.lines[0].store_ratio().has_value());
}

TEST_CASE("the best configuration is chosen for each size, and sizes are in order") {
  auto first = times(kMiB, 1.0, 1.0, 5.0);
  auto second = times(kMiB, 1.0, 1.0, 6.0);
  for (const Measured& more : times(8, 1.0, 1.0, 3.0)) first.push_back(more);
  for (const Measured& more : times(8, 1.0, 1.0, 2.0)) second.push_back(more);
  const Merged merged = merge(std::vector{launch_of("default", first), launch_of("ob1", second)});
  REQUIRE(merged.lines.size() == 2);
  CHECK(merged.lines[0].bytes == 8);
  CHECK(merged.lines[0].best()->configuration == "ob1");
  CHECK(merged.lines[1].best()->configuration == "default");
}

TEST_CASE("a size that a launch lacks is compared without it, and named") {
  auto both = times(8, 1.0, 2.0, 4.0);
  for (const Measured& more : times(16, 1.0, 2.0, 8.0)) both.push_back(more);
  const Merged merged =
      merge(std::vector{launch_of("default", both), launch_of("ob1", times(8, 1.0, 2.0, 3.0))});
  REQUIRE(merged.lines.size() == 2);
  CHECK(merged.lines[1].mpi.size() == 1);
  CHECK(merged.lines[1].best()->configuration == "default");
  CHECK(merged.missing ==
        std::vector<std::string>{"MPI, ob1 at 16 B: 0 of 1 results",
                                 "Tutti in the store's memory at 16 B: 1 of 2 results",
                                 "Tutti in ordinary memory at 16 B: 1 of 2 results"});
}

TEST_CASE("without a time of MPI there is no best, no ratio and no mean") {
  const Merged merged = merge(std::vector{launch_of("default", {{"tutti", "store", 8, 1.0}})});
  CHECK(merged.lines[0].best() == nullptr);
  CHECK_FALSE(merged.lines[0].store_ratio().has_value());
  CHECK_FALSE(merged.lines[0].user_ratio().has_value());
  CHECK_FALSE(means_of(merged, bands().back()).store.has_value());
  CHECK(has(to_markdown(merged, {}), "| n/a "));
  CHECK(nlohmann::json::parse(to_json(merged, {})).at("results")[0].at("best").is_null());
}

TEST_CASE("means are geometric, and each size is in one band and in the last") {
  std::vector<Measured> results;
  const auto add = [&](std::size_t bytes, double ratio) {
    for (const Measured& more : times(bytes, 2.0, 4.0, 2.0 * ratio)) results.push_back(more);
  };
  add(8, 2.0);
  add(1024, 8.0);
  add(2048, 3.0);
  add(2 * kMiB, 27.0);
  add(8 * kMiB, 5.0);
  add(32 * kMiB, 1.0);
  add(128 * kMiB, 49.0);
  const Merged merged = merge(std::vector{launch_of("default", results)});
  const double expected[] = {4.0, 9.0, 5.0, 7.0,
                             std::pow(2.0 * 8.0 * 3.0 * 27.0 * 5.0 * 49.0, 1.0 / 7.0)};
  REQUIRE(bands().size() == 5);
  for (std::size_t i = 0; i < 5; ++i) {
    CAPTURE(bands()[i].name);
    const Means means = means_of(merged, bands()[i]);
    CHECK(*means.store == doctest::Approx(expected[i]));
    CHECK(*means.user == doctest::Approx(expected[i] / 2.0));
  }
}

TEST_CASE("launches under other conditions are refused, with both values") {
  Launch other = launch_of("ob1", times(8, 1.0, 2.0, 3.0));
  other.conditions[3].second = "hot";
  const std::string text = merge_refusal({launch_of("default", times(8, 1.0, 2.0, 3.0)), other});
  CHECK(has(text, "cache is fresh in default"));
  CHECK(has(text, "and hot in ob1"));
  CHECK(has(merge_refusal({}), "expected at least one file"));
  CHECK(has(merge_refusal({launch_of("default", {})}), "no file has a result"));
}

TEST_CASE("launches that were made with other options or another tuning are refused") {
  const auto refusal_with = [](const char* part, const char* name, const nlohmann::json& value) {
    auto file = nlohmann::json::parse(file_of("ob1"));
    CHECK(file.at(part).contains(name));
    file[part][name] = value;
    return merge_refusal({parse_launch(file_of("default")), parse_launch(file.dump())});
  };
  CHECK(has(refusal_with("config", "warmup_iterations", 7), "warmup_iterations is 5 in default"));
  CHECK(has(refusal_with("config", "check", false), "check is true in default"));
  CHECK(has(refusal_with("config", "device", "gpu"), "device is cpu in default"));
  CHECK(has(refusal_with("environment", "vector_instructions", "none"), "vector_instructions is "));
  CHECK(has(refusal_with("environment", "tuning", "static"), "tuning is "));
  CHECK(has(refusal_with("environment", "algorithms", {"other"}), "algorithms is "));
}

TEST_CASE("a --json file with a label becomes a launch") {
  const Launch launch = parse_launch(file_of("ob1", 3));
  CHECK(launch.configuration == "ob1");
  CHECK(launch.wrong == 3);
  CHECK(launch.checked);
  REQUIRE(launch.results.size() == 3);
  CHECK(launch.results[1].backend == "tutti");
  CHECK(launch.results[1].buffers == "user");
  CHECK(launch.results[1].p50_us == 2.0);
  CHECK_FALSE(parse_launch(file_of("ob1", std::nullopt)).checked);
}

TEST_CASE("what is no launch is refused in words") {
  CHECK(has(parse_refusal("{"), "not the --json of collective-benchmark: "));
  CHECK(has(parse_refusal("{}"), "not the --json of collective-benchmark: "));
  CHECK(has(parse_refusal(file_of("")), "expected one that was made with --label"));
  auto stopped = nlohmann::json::parse(file_of("a"));
  stopped["results"][0]["time_us"]["p50"] = 0.0;
  for (const char* name : {"type", "redop", "root", "in_place"}) {
    auto several = nlohmann::json::parse(file_of("a"));
    several["results"][2][name] = "another";
    CHECK(has(parse_refusal(several.dump()),
              (std::string("results of more than one ") + name + ": expected one --").c_str()));
  }
  CHECK(has(parse_refusal(stopped.dump()), "a p50 of 8 B: expected a time above 0, found 0.0"));
}

TEST_CASE("wrong elements are added up, and stand in the table and in the JSON") {
  std::vector<Launch> launches{parse_launch(file_of("default")), parse_launch(file_of("ob1"))};
  CHECK(has(to_markdown(merge(launches), {}), "\nWrong elements: 0.\n"));
  CHECK(nlohmann::json::parse(to_json(merge(launches), {})).at("wrong") == 0);
  launches[0].wrong = 2;
  launches[1].wrong = 5;
  CHECK(has(to_markdown(merge(launches), {}), "\nWrong elements: 7, FAILED.\n"));
  CHECK(nlohmann::json::parse(to_json(merge(launches), {})).at("wrong") == 7);
  launches[0] = parse_launch(file_of("default", std::nullopt));
  launches[1].wrong = 0;
  CHECK(has(to_markdown(merge(launches), {}), "not every result was checked"));
  CHECK(nlohmann::json::parse(to_json(merge(launches), {})).at("wrong").is_null());
}

TEST_CASE("the table has what was measured, notes, times, ratios, means and what is missing") {
  Merged merged =
      merge(std::vector{parse_launch(file_of("default")), parse_launch(file_of("ob1"))});
  merged.missing.emplace_back("han, round 1: exit code 2");
  const std::string text = to_markdown(merged, std::vector<std::string>{"a note"});
  CHECK(text.starts_with("### allreduce, float32 sum, fresh inputs: Tutti and the best"));
  CHECK(has(text, "- 2 ranks on 1 node: one (2)"));
  CHECK(has(text, "- Configurations (launches): default (1), ob1 (1)\n- a note\n"));
  CHECK(has(text, "- Ratio: best MPI / Tutti of one launch, then the median over the launches"));
  CHECK(has(text, "| size | Tutti, store |"));
  CHECK(has(text, "| 8 B  |         1.00 |            2.00 |     6.00 | default |"));
  CHECK(has(text, "|         6.00 |            3.00 |\n"));
  CHECK(has(text, "| all sizes         |         6.00 |            3.00 |\n"));
  CHECK(has(text, "**Missing:** han, round 1: exit code 2\n"));
}

TEST_CASE("the JSON has every configuration's time, so that another best can be chosen") {
  const Merged merged = merge(std::vector{launch_of("default", times(8, 1.0, 2.0, 4.0)),
                                          launch_of("ob1", times(8, 1.0, 2.0, 3.0))});
  const auto json = nlohmann::json::parse(to_json(merged, std::vector<std::string>{"a note"}));
  const auto& line = json.at("results")[0];
  CHECK(line.at("mpi_us").at("default") == 4.0);
  CHECK(line.at("mpi_us").at("ob1") == 3.0);
  CHECK(line.at("mpi_ratios").at("default").at("user") == 2.0);
  CHECK(line.at("best") == "ob1");
  CHECK(line.at("store_ratio") == 3.0);
  CHECK(json.at("geometric_means").size() == bands().size());
  CHECK(json.at("conditions").at("cache") == "fresh");
  CHECK(json.at("notes")[0] == "a note");
}

TEST_CASE("the picture has times, ratios, and a line where both are as fast") {
  auto results = times(8, 1.0, 2.0, 4.0);
  for (const Measured& more : times(kMiB, 10.0, 20.0, 15.0)) results.push_back(more);
  const std::string svg = to_svg(merge(std::vector{launch_of("default", results)}));
  const auto count_of = [&](const std::string& part) {
    int found = 0;
    for (auto at = svg.find(part); at != std::string::npos; at = svg.find(part, at + 1)) ++found;
    return found;
  };
  CHECK(count_of("series-store") == 2);
  CHECK(count_of("series-user") == 2);
  CHECK(count_of("series-mpi") == 1);
  CHECK(count_of("stroke-dasharray") == 1);
  CHECK(count_of(">as fast as the best MPI<") == 1);
  CHECK(count_of("a&lt;b (2)") == 1);
  CHECK(count_of("nan") == 0);
}
