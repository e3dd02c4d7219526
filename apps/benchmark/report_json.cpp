// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/report_json.hpp"

#include <nlohmann/json.hpp>
#include <sstream>

namespace apps::benchmark {
namespace {

using Json = nlohmann::ordered_json;

Json config_of(const Options& options) {
  Json config{{"collective", options.collective},
              {"backends", options.backends},
              {"min_bytes", options.min_bytes},
              {"max_bytes", options.max_bytes},
              {"step_factor", options.step_factor},
              {"type", to_string(options.dtype)},
              {"redop", to_string(options.op)},
              {"iterations", nullptr},
              {"warmup_iterations", options.warmups},
              {"check", options.check},
              {"buffers", options.buffers},
              {"cache", options.cold ? "cold" : "hot"},
              {"device", "cpu"},
              {"ranks_per_node", options.ranks_per_node},
              {"model", nullptr},
              {"compression", nullptr}};
  if (options.iterations) config["iterations"] = *options.iterations;
  if (!options.model.empty()) config["model"] = options.model;
  if (options.compresses()) {
    config["compression"] = tutti::compression::to_string(options.compression);
  }
  return config;
}

Json environment_of(const Machine& machine, const MemorySpeed& memory) {
  Json hosts = Json::array();
  for (const Host& host : machine.hosts) {
    hosts.push_back({{"name", host.name}, {"ranks", host.ranks}});
  }
  return {{"started", machine.started},
          {"ranks", machine.ranks},
          {"nodes", machine.nodes},
          {"hosts", hosts},
          {"library", machine.library},
          {"mpi", machine.mpi},
          {"vector_instructions", machine.vector_instructions},
          {"processor", machine.processor},
          {"last_level_cache_bytes", machine.cache_bytes},
          {"algorithms", machine.algorithms},
          {"memory_gbs", {{"per_rank", memory.per_rank_gbs}, {"total", memory.total_gbs}}}};
}

Json result_of(const Result& result) {
  Json json{{"collective", result.collective},
            {"backend", result.backend},
            {"buffers", result.buffers},
            {"bytes", result.bytes},
            {"count", result.count},
            {"type", result.type},
            {"redop", result.redop},
            {"iterations", result.iterations},
            {"time_us",
             {{"p50", result.time_us.p50},
              {"min", result.time_us.min},
              {"p99", result.time_us.p99},
              {"max", result.time_us.max}}},
            {"algbw_gbs", result.algbw_gbs},
            {"busbw_gbs", result.busbw_gbs},
            {"wrong", nullptr}};
  if (result.wrong) json["wrong"] = *result.wrong;
  return json;
}

}  // namespace

std::string to_json(std::span<const Row> rows, const Options& options, const Machine& machine,
                    const MemorySpeed& memory) {
  Json results = Json::array();
  for (const Row& row : rows) {
    for (const auto& result : row.results) {
      if (result) results.push_back(result_of(*result));
    }
  }
  const Json whole{{"config", config_of(options)},
                   {"environment", environment_of(machine, memory)},
                   {"results", results}};
  // A host or processor may have a name that is not UTF-8.
  return whole.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_csv(std::span<const Row> rows) {
  std::ostringstream text;
  text << "collective,backend,buffers,bytes,count,type,redop,iterations,p50_us,min_us,p99_us,"
          "max_us,algbw_gbs,busbw_gbs,wrong\n";
  for (const Row& row : rows) {
    for (const auto& result : row.results) {
      if (!result) continue;
      const Times& time = result->time_us;
      text << result->collective << ',' << result->backend << ',' << result->buffers << ','
           << result->bytes << ',' << result->count << ',' << result->type << ',' << result->redop
           << ',' << result->iterations << ',' << time.p50 << ',' << time.min << ',' << time.p99
           << ',' << time.max << ',' << result->algbw_gbs << ',' << result->busbw_gbs << ',';
      if (result->wrong) text << *result->wrong;
      text << '\n';
    }
  }
  return text.str();
}

}  // namespace apps::benchmark
