// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/launches.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "support/command_line.hpp"
#include "support/text.hpp"

namespace apps::benchmark {
namespace {

std::string text_of(const nlohmann::json& value) {
  if (value.is_null()) return "none";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Conditions conditions_of(const nlohmann::json& config, const nlohmann::json& environment,
                         const nlohmann::json& results) {
  Conditions conditions;
  // A collective that only moves elements has no operation, whatever the command line says.
  const nlohmann::json& any = results.at(0);
  conditions.emplace_back("redop", text_of(any.at("redop")));
  for (const nlohmann::json& result : results) {
    for (const char* name : {"type", "redop", "root", "in_place"}) {
      if (result.value(name, nlohmann::json()) == any.value(name, nlohmann::json())) continue;
      throw_usage_error(std::string("the run has results of more than one ") + name +
                        ": expected one --datatype, --op, --root and --place");
    }
  }
  for (const char* name : {"collective", "type", "cache", "model", "compression", "device",
                           "iterations", "warmup_iterations", "check", "ranks_per_node"}) {
    conditions.emplace_back(name, text_of(config.at(name)));
  }
  conditions.emplace_back("calls_per_iteration",
                          std::to_string(config.value("calls_per_iteration", 1)));
  conditions.emplace_back("root", std::to_string(any.value("root", 0)));
  conditions.emplace_back("in_place", any.value("in_place", false) ? "true" : "false");
  for (const char* name :
       {"ranks", "nodes", "library", "mpi", "vector_instructions", "processor", "algorithms"}) {
    conditions.emplace_back(name, text_of(environment.at(name)));
  }
  conditions.emplace_back("tuning", text_of(environment.value("tuning", nlohmann::json())));
  std::string hosts;
  for (const nlohmann::json& host : environment.at("hosts")) {
    hosts += (hosts.empty() ? "" : ", ") + text_of(host.at("name")) + " (" +
             text_of(host.at("ranks")) + ")";
  }
  conditions.emplace_back("hosts", hosts);
  conditions.emplace_back("last-level cache",
                          bytes_text(environment.at("last_level_cache_bytes").get<double>()));
  return conditions;
}

Measured measured_of(const nlohmann::json& result) {
  Measured measured{.backend = result.at("backend"),
                    .buffers = result.at("buffers"),
                    .bytes = result.at("bytes"),
                    .p50_us = result.at("time_us").at("p50")};
  if (measured.p50_us > 0.0) return measured;
  throw_usage_error("a p50 of " + std::to_string(measured.bytes) +
                    " B: expected a time above 0, found " + result.at("time_us").at("p50").dump());
}

/// Timings of one kind over the launches, by size and name.
using Timings = std::map<std::size_t, std::map<std::string, std::vector<double>>>;

/// What a result is a time of: Tutti's by their buffers, MPI's by the configuration.
std::string name_of(const Launch& launch, const Measured& result) {
  return result.backend == "tutti" ? "tutti " + result.buffers : "mpi " + launch.configuration;
}

Timings times_of(std::span<const Launch> launches) {
  Timings times;
  for (const Launch& launch : launches) {
    for (const Measured& result : launch.results) {
      if (result.backend != "tutti" && result.backend != "mpi") continue;
      times[result.bytes][name_of(launch, result)].push_back(result.p50_us);
    }
  }
  return times;
}

/// MPI's time / Tutti's in `buffers`, of each launch of a configuration that has both.
std::optional<double> paired_ratio(std::span<const Launch> launches, std::size_t bytes,
                                   const std::string& configuration, const std::string& buffers) {
  std::vector<double> ratios;
  for (const Launch& launch : launches) {
    if (launch.configuration != configuration) continue;
    const auto time_of = [&](const std::string& name) {
      const auto found = std::ranges::find_if(launch.results, [&](const Measured& result) {
        return result.bytes == bytes && name_of(launch, result) == name;
      });
      return found == launch.results.end() ? 0.0 : found->p50_us;
    };
    const double mpi = time_of("mpi " + configuration);
    const double tutti = time_of("tutti " + buffers);
    if (mpi > 0.0 && tutti > 0.0) ratios.push_back(mpi / tutti);
  }
  if (ratios.empty()) return std::nullopt;
  return median(std::move(ratios));
}

std::optional<double> median_of(const Timings::mapped_type& times, const std::string& name) {
  const auto found = times.find(name);
  if (found == times.end()) return std::nullopt;
  return median(found->second);
}

std::vector<Configuration> configurations_of(std::span<const Launch> launches) {
  std::vector<Configuration> all;
  for (const Launch& launch : launches) {
    const auto known = std::ranges::find(all, launch.configuration, &Configuration::name);
    if (known == all.end()) {
      all.push_back({launch.configuration, 1});
    } else {
      ++known->launches;
    }
  }
  return all;
}

Line line_of(std::size_t bytes, const Timings::mapped_type& times, const Merged& merged,
             std::span<const Launch> launches) {
  Line line{.bytes = bytes,
            .store_us = median_of(times, "tutti store"),
            .user_us = median_of(times, "tutti user"),
            .mpi = {}};
  for (const Configuration& configuration : merged.configurations) {
    const auto time = median_of(times, "mpi " + configuration.name);
    if (!time) continue;
    const auto ratio_to = [&](const char* buffers) {
      return paired_ratio(launches, bytes, configuration.name, buffers);
    };
    line.mpi.push_back({configuration.name, *time, ratio_to("store"), ratio_to("user")});
  }
  return line;
}

/// A launch that lacks a size that others have: the table would not show it.
std::vector<std::string> gaps_of(const Timings& times, const Merged& merged) {
  std::vector<std::string> gaps;
  const auto look_for = [&](const std::string& name, std::size_t launches, const std::string& who) {
    for (const auto& [bytes, by_name] : times) {
      const auto found = by_name.find(name);
      const std::size_t there = found == by_name.end() ? 0 : found->second.size();
      if (there == launches) continue;
      gaps.push_back(who + " at " + bytes_text(static_cast<double>(bytes)) + ": " +
                     std::to_string(there) + " of " + std::to_string(launches) + " results");
    }
  };
  std::size_t all = 0;
  for (const Configuration& configuration : merged.configurations) {
    all += configuration.launches;
    look_for("mpi " + configuration.name, configuration.launches, "MPI, " + configuration.name);
  }
  look_for("tutti store", all, "Tutti in the store's memory");
  look_for("tutti user", all, "Tutti in ordinary memory");
  return gaps;
}

void require_alike(const Launch& first, const Launch& other) {
  for (std::size_t i = 0; i < first.conditions.size(); ++i) {
    const auto& [name, text] = first.conditions[i];
    const std::string& found = other.conditions.at(i).second;
    if (text == found) continue;
    throw_usage_error("launches that differ cannot be compared: " + name + " is " + text + " in " +
                      first.configuration + " (" + first.started + ") and " + found + " in " +
                      other.configuration + " (" + other.started + ")");
  }
}

}  // namespace

Launch parse_launch(const std::string& text) {
  try {
    const nlohmann::json whole = nlohmann::json::parse(text);
    const nlohmann::json& config = whole.at("config");
    if (!config.at("label").is_string()) {
      throw_usage_error("the run has no name: expected one that was made with --label");
    }
    Launch launch{.configuration = config.at("label"),
                  .conditions = conditions_of(config, whole.at("environment"), whole.at("results")),
                  .started = whole.at("environment").at("started"),
                  .results = {}};
    for (const nlohmann::json& result : whole.at("results")) {
      launch.results.push_back(measured_of(result));
      const nlohmann::json& wrong = result.at("wrong");
      if (wrong.is_null()) launch.checked = false;
      if (!wrong.is_null()) launch.wrong += wrong.get<std::uint64_t>();
    }
    return launch;
  } catch (const nlohmann::json::exception& error) {
    throw_usage_error(std::string("not the --json of collective-benchmark: ") + error.what());
  }
}

const MpiTime* Line::best() const {
  const auto fastest = std::ranges::min_element(mpi, {}, &MpiTime::p50_us);
  return fastest == mpi.end() ? nullptr : &*fastest;
}

std::optional<double> Line::store_ratio() const {
  const MpiTime* const fastest = best();
  return fastest == nullptr ? std::nullopt : fastest->store_ratio;
}

std::optional<double> Line::user_ratio() const {
  const MpiTime* const fastest = best();
  return fastest == nullptr ? std::nullopt : fastest->user_ratio;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2.0;
}

Merged merge(std::span<const Launch> launches) {
  if (launches.empty()) throw_usage_error("--results: expected at least one file");
  Merged merged{.conditions = launches.front().conditions,
                .started = launches.front().started,
                .configurations = configurations_of(launches),
                .lines = {},
                .missing = {}};
  for (const Launch& launch : launches) {
    require_alike(launches.front(), launch);
    merged.started = std::min(merged.started, launch.started);
    merged.wrong += launch.wrong;
    merged.checked = merged.checked && launch.checked;
  }
  const Timings times = times_of(launches);
  if (times.empty()) throw_usage_error("--results: no file has a result of tutti or mpi");
  for (const auto& [bytes, by_name] : times) {
    merged.lines.push_back(line_of(bytes, by_name, merged, launches));
  }
  merged.missing = gaps_of(times, merged);
  return merged;
}

std::span<const Band> bands() {
  constexpr std::size_t kKiB = 1024;
  constexpr std::size_t kMiB = 1024 * kKiB;
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  static constexpr std::array kBands{
      Band{"up to 1 KiB", 0, kKiB},
      Band{"above 1 KiB, up to 2 MiB", kKiB, 2 * kMiB},
      Band{"above 2 MiB, below 32 MiB", 2 * kMiB, 32 * kMiB - 1},
      Band{"32 MiB and more", 32 * kMiB - 1, kMost},
      Band{"all sizes", 0, kMost},
  };
  return kBands;
}

Means means_of(const Merged& merged, const Band& band) {
  const auto mean_of = [&](std::optional<double> (Line::*ratio)() const) -> std::optional<double> {
    double logarithms = 0.0;
    int count = 0;
    for (const Line& line : merged.lines) {
      const auto value = (line.*ratio)();
      if (!value || line.bytes <= band.above || line.bytes > band.up_to) continue;
      logarithms += std::log(*value);
      ++count;
    }
    if (count == 0) return std::nullopt;
    return std::exp(logarithms / count);
  };
  return {.store = mean_of(&Line::store_ratio), .user = mean_of(&Line::user_ratio)};
}

}  // namespace apps::benchmark
