// SPDX-License-Identifier: Apache-2.0
#include "apps/simulator/measured_file.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include <tutti/error.hpp>

namespace apps::simulator {

namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse_file(const std::string& where, const std::string& why) {
  throw tutti::Error(tutti::ErrorCode::invalid_argument, "--measured: " + where + ": " + why);
}

bool can_be_simulated(const Json& result) {
  const Json& collective = result.at("collective");
  const Json& buffers = result.at("buffers");
  return (collective == "allreduce" || collective == "pushpull") &&
         (buffers == "user" || buffers == "store") &&  // and not "gpu"
         result.at("backend") == "tutti" && result.at("type") == "float32" &&
         result.at("redop") == "sum" && result.at("in_place") == false &&
         result.at("time_us").at("p50").is_number();
}

SimulatedCall case_of(const Json& result, const Json& config, int nodes, int ranks, bool learns) {
  SimulatedCall what{nodes, ranks / nodes, result.at("bytes").get<std::size_t>()};
  what.learns = learns;
  what.collective = result.at("collective").get<std::string>();
  what.buffers = result.at("buffers").get<std::string>();
  const Json& compression = config.at("compression");
  if (!compression.is_null()) what.compression = compression.get<std::string>();
  what.begin = Begin::after_barrier;
  return what;
}

std::vector<Timed> results_of(const Json& file, const std::string& where, bool learns) {
  const Json& environment = file.at("environment");
  const Json& config = file.at("config");
  const int nodes = environment.at("nodes").get<int>();
  const int ranks = environment.at("ranks").get<int>();
  if (nodes < 1 || ranks % nodes != 0 || !config.at("ranks_per_node").empty()) {
    refuse_file(where, "got " + std::to_string(ranks) + " ranks on " + std::to_string(nodes) +
                           " nodes; expected: hosts with equally many ranks, not split into nodes");
  }
  if (ranks > kMostRanks) {
    refuse_file(where, "got " + std::to_string(ranks) + " ranks; expected: at most " +
                           std::to_string(kMostRanks));
  }
  std::vector<Timed> all;
  for (const Json& result : file.at("results")) {
    if (!can_be_simulated(result)) continue;
    const double seconds = result.at("time_us").at("p50").get<double>() / 1e6;
    if (seconds > 0) all.push_back({case_of(result, config, nodes, ranks, learns), seconds});
  }
  return all;
}

}  // namespace

std::vector<Timed> measured_of(const std::string& text, const std::string& where, bool learns) {
  std::vector<Timed> all;
  try {
    all = results_of(Json::parse(text), where, learns);
  } catch (const Json::exception& error) {
    refuse_file(where, std::string("expected a --json of collective-benchmark: ") + error.what());
  }
  if (all.empty()) {
    refuse_file(where,
                "has no allreduce or pushpull of Tutti's of float32 sums, out of place, on CPUs: "
                "nothing else is simulated");
  }
  return all;
}

std::vector<Timed> read_measured(const std::filesystem::path& path, bool learns) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) refuse_file(path.string(), "cannot be read");
  return measured_of(text.str(), path.string(), learns);
}

}  // namespace apps::simulator
