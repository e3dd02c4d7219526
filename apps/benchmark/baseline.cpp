// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/baseline.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include <tutti/error.hpp>

#include "support/command_line.hpp"
#include "support/text.hpp"

namespace apps::benchmark {
namespace {

/// Refuses a baseline with another condition, under which other times are no regression.
void require_equal(const char* what, const nlohmann::json& then, const nlohmann::json& now) {
  if (then == now) return;
  throw_usage_error(std::string("the baseline was measured with ") + what + " " + then.dump() +
                    ", this run has " + now.dump());
}

BaselineEntry entry_of(const nlohmann::json& result) {
  return {.collective = result.at("collective"),
          .backend = result.at("backend"),
          .buffers = result.at("buffers"),
          // Earlier versions measured out of place, with root 0.
          .in_place = result.value("in_place", false),
          .bytes = result.at("bytes"),
          .type = result.at("type"),
          .redop = result.at("redop"),
          .root = result.value("root", 0),
          .p50_us = result.at("time_us").at("p50")};
}

bool matches(const BaselineEntry& entry, const Result& result) {
  return entry.collective == result.collective && entry.backend == result.backend &&
         entry.buffers == result.buffers && entry.bytes == result.bytes &&
         entry.type == result.type && entry.redop == result.redop && entry.root == result.root &&
         entry.in_place == result.in_place;
}

std::string slower_line(const Result& result, const BaselineEntry& entry) {
  return result.backend + " " + result.collective + " " + std::to_string(result.bytes) + " B in " +
         result.buffers + " memory" + (result.in_place ? ", in place: " : ": ") +
         time_text(result.time_us.p50) + " us, was " + time_text(entry.p50_us) + " us (" +
         format("%+.0f %%", (result.time_us.p50 / entry.p50_us - 1.0) * 100.0) + ")";
}

}  // namespace

std::vector<BaselineEntry> parse_baseline(const std::string& text, const Options& options,
                                          const Machine& machine) {
  try {
    const nlohmann::json whole = nlohmann::json::parse(text);
    const nlohmann::json& config = whole.at("config");
    const nlohmann::json& environment = whole.at("environment");
    require_equal("ranks", environment.at("ranks"), machine.ranks);
    require_equal("nodes", environment.at("nodes"), machine.nodes);
    require_equal("--cache", config.at("cache"), to_string(options.cache));
    require_equal("--agg_iters", config.value("calls_per_iteration", 1),
                  options.calls_per_iteration);
    require_equal("--model", config.at("model"),
                  options.model.empty() ? nlohmann::json() : nlohmann::json(options.model));
    require_equal("--compression", config.value("compression", nlohmann::json()),
                  options.compresses()
                      ? nlohmann::json(tutti::compression::to_string(options.compression))
                      : nlohmann::json());
    std::vector<BaselineEntry> entries;
    for (const nlohmann::json& result : whole.at("results")) entries.push_back(entry_of(result));
    return entries;
  } catch (const nlohmann::json::exception& error) {
    throw_usage_error(std::string("not the --json of an earlier run: ") + error.what());
  }
}

std::vector<BaselineEntry> load_baseline(const Options& options, const Machine& machine) {
  const std::string path = options.baseline.string();
  std::ifstream file(path);
  if (!file) throw_usage_error("--baseline: " + path + ": " + std::strerror(errno));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    return parse_baseline(text, options, machine);
  } catch (const tutti::Error& error) {
    throw tutti::Error(error.code(), "--baseline: " + path + ": " + error.what());
  }
}

Comparison compare(std::span<const Row> rows, std::span<const BaselineEntry> baseline,
                   double tolerance) {
  Comparison comparison;
  for (const Row& row : rows) {
    for (const auto& result : row.results) {
      if (!result) continue;
      const auto entry =
          std::find_if(baseline.begin(), baseline.end(),
                       [&](const BaselineEntry& candidate) { return matches(candidate, *result); });
      if (entry == baseline.end()) continue;
      ++comparison.compared;
      if (result->time_us.p50 > entry->p50_us * (1.0 + tolerance / 100.0)) {
        comparison.slower.push_back(slower_line(*result, *entry));
      }
    }
  }
  return comparison;
}

}  // namespace apps::benchmark
