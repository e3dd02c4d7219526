// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/report.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "apps/benchmark/cases.hpp"
#include "support/text.hpp"

namespace apps::benchmark {

namespace {

constexpr std::size_t kSizeWidth = 12;
constexpr std::size_t kCountWidth = 12;
constexpr std::size_t kTypeWidth = 9;
constexpr std::size_t kOpWidth = 6;
constexpr std::size_t kTimeWidth = 9;
constexpr std::size_t kRateWidth = 8;
constexpr std::size_t kWrongWidth = 7;

std::string size_columns(const std::string& size, const std::string& count, const std::string& type,
                         const std::string& redop) {
  return column(size, kSizeWidth) + column(count, kCountWidth) + column(type, kTypeWidth) +
         column(redop, kOpWidth);
}

std::string backend_columns(const std::vector<std::string>& times, const std::string& algbw,
                            const std::string& busbw, const std::string& wrong) {
  std::string text = "  ";
  for (const std::string& time : times) text += column(time, kTimeWidth);
  return text + column(algbw, kRateWidth) + column(busbw, kRateWidth) + column(wrong, kWrongWidth);
}

double time_of(const Times& times, const std::string& name) {
  if (name == "p50") return times.p50;
  if (name == "p99") return times.p99;
  if (name == "avg") return times.avg;
  return name == "min" ? times.min : times.max;
}

/// The title over a backend's columns: "----- tutti -----".
std::string backend_title(const std::string& name, std::size_t times) {
  const std::size_t width = times * kTimeWidth + 2 * kRateWidth + kWrongWidth;
  const std::size_t dashes = std::max(width, name.size() + 6) - name.size() - 4;
  return "    " + std::string(dashes / 2, '-') + " " + name + " " +
         std::string(dashes - dashes / 2, '-');
}

bool has_both_buffers(const Options& options) { return options.buffers.size() > 1; }

/// The name of a contender: "mpi", "tutti", or "tutti store" where there are two kinds of buffers;
/// with ", in place" if it is.
std::string title_of(const Contender& contender, const Options& options) {
  const std::string place = contender.in_place ? ", in place" : "";
  if (contender.backend != "tutti" || !has_both_buffers(options)) return contender.backend + place;
  return contender.backend + " " + contender.buffers + place;
}

/// A last column: how many times longer than Tutti another backend takes.
struct RatioColumn {
  Contender own;
  Contender other;
  std::string name;  ///< "mpi/tutti", or "mpi/store" and "mpi/user"; in place "mpi/tutti,in"

  [[nodiscard]] std::size_t width() const { return name.size() + 1; }
};

std::vector<RatioColumn> ratio_columns(const Options& options) {
  std::vector<RatioColumn> columns;
  const auto all = options.contenders();
  for (const Contender& own : all) {
    if (own.backend != "tutti") continue;
    for (const Contender& other : all) {
      if (other.backend == "tutti" || other.in_place != own.in_place) continue;
      const std::string name = has_both_buffers(options) ? own.buffers : own.backend;
      columns.push_back({own, other, other.backend + "/" + name + (own.in_place ? ",in" : "")});
    }
  }
  return columns;
}

std::string column_names(const Options& options) {
  std::string titles = "#" + std::string(kSizeWidth + kCountWidth + kTypeWidth + kOpWidth - 1, ' ');
  std::string names = "#" + size_columns("size", "count", "type", "redop").substr(1);
  std::string units = "#" + size_columns("(B)", "(elements)", "", "").substr(1);
  for (const Contender& contender : options.contenders()) {
    titles += backend_title(title_of(contender, options), options.times.size());
    names += backend_columns(options.times, "algbw", "busbw", "#wrong");
    units += backend_columns(std::vector<std::string>(options.times.size(), "(us)"), "(GB/s)",
                             "(GB/s)", "");
  }
  for (const RatioColumn& ratios : ratio_columns(options)) {
    names += column(ratios.name, ratios.width());
  }
  units.resize(units.find_last_not_of(' ') + 1);
  return titles + "\n" + names + "\n" + units + "\n";
}

std::string iterations_text(const Options& options) {
  std::string warmups = ", " + std::to_string(options.warmups) + " to warm up";
  if (options.calls_per_iteration > 1) {
    warmups += ", " + std::to_string(options.calls_per_iteration) + " calls in each";
  }
  if (options.iterations) return std::to_string(*options.iterations) + " iterations" + warmups;
  return "20 to 2000 iterations" + warmups;
}

std::string what_text(const Options& options) {
  const Case& chosen = find_case(options.collective);
  std::string text = options.collective;
  if (!options.model.empty()) text += " of " + options.model;
  if (chosen.has_sizes) text += ", " + dtypes_text(options);
  if (chosen.reduces) text += " " + ops_text(options);
  if (has_root(chosen)) text += ", root " + root_text(options);
  return text;
}

std::string cache_text(CacheMode mode) {
  switch (mode) {
    case CacheMode::hot:
      return "hot: inputs written once";
    case CacheMode::cold:
      return "cold: inputs out of the caches before every call";
    case CacheMode::fresh:
      return "fresh: inputs written by their rank before every call";
  }
  return "unknown";
}

std::string buffers_text(const Options& options) {
  if (options.on_gpu) {
    return "in memory of the GPUs, MPI's go by way of the host; " + cache_text(options.cache);
  }
  std::string text;
  for (const Contender& contender : options.contenders()) {
    text += contender.backend + "'s in " + contender.buffers + " memory" +
            (contender.in_place ? ", in place; " : "; ");
  }
  return text + cache_text(options.cache);
}

std::string memory_text(const Options& options, const Machine& machine, const MemorySpeed& memory) {
  std::string text =
      "# Memory : " +
      format("%.1f GB/s per rank, %.1f GB/s in all", memory.per_rank_gbs, memory.total_gbs) +
      " (two-input add, non-temporal stores, all ranks at once)\n";
  if (!memory.exceeds_cache) {
    text += "#   measured on three arrays of " +
            bytes_text(static_cast<double>(memory.array_bytes)) +
            " per rank, which the last-level cache of " +
            bytes_text(static_cast<double>(machine.cache_bytes)) +
            " may hold: it may be the cache's speed\n";
  }
  const Case& chosen = find_case(options.collective);
  const double limit = busbw_limit(chosen, machine.ranks, memory.per_rank_gbs);
  if (limit == 0.0) return text;
  return text + format(
                    "#   as busbw : at most %.3g GB/s beyond the caches (a rank reads and writes "
                    "at least %.3g times the size)\n",
                    limit, chosen.memory_factor(machine.ranks));
}

}  // namespace

std::string table_head(const Options& options, const Machine& machine) {
  std::string text = "# collective-benchmark: " + what_text(options) + "\n";
  text += "# ranks: " + std::to_string(machine.ranks) + " on " + std::to_string(machine.nodes) +
          (machine.nodes == 1 ? " node" : " nodes") + "; hosts: " + hosts_text(machine.hosts) +
          "\n";
  text += "# processor: " + machine.processor + ", last-level cache " +
          bytes_text(static_cast<double>(machine.cache_bytes)) + "\n";
  text += "# " + machine.library + ", vector instructions: " + machine.vector_instructions +
          "; MPI: " + machine.mpi + "\n";
  for (const std::string& line : machine.algorithms) text += "# " + line + "\n";
  text += "# buffers: " + buffers_text(options) + "; " + iterations_text(options) +
          (options.check ? "; every element is checked" : "; results are not checked") + "\n";
  text +=
      "# times are the longest over the ranks, from a common barrier on; 1 GB = 10^9 bytes\n#\n";
  return text + column_names(options);
}

std::string pass_head(const Options& options, const Options& pass) {
  return options.root ? std::string() : "# root " + root_text(pass) + "\n";
}

std::string table_row(const Row& row, const Options& options) {
  std::string line =
      size_columns(std::to_string(row.bytes), std::to_string(row.count), row.type, row.redop);
  for (const auto& result : row.results) {
    if (!result) {
      line += backend_columns(std::vector<std::string>(options.times.size(), "n/a"), "n/a", "n/a",
                              "n/a");
      continue;
    }
    std::vector<std::string> times;
    for (const std::string& name : options.times) {
      times.push_back(time_text(time_of(result->time_us, name)));
    }
    line += backend_columns(times, rate_text(result->algbw_gbs), rate_text(result->busbw_gbs),
                            result->wrong ? std::to_string(*result->wrong) : "N/A");
  }
  for (const RatioColumn& ratios : ratio_columns(options)) {
    const auto times = ratio(row, ratios.own, ratios.other);
    line += column(times ? format("%.2f", *times) : "n/a", ratios.width());
  }
  if (row.packed_bytes && row.bytes > 0) {
    line += format("\n#%*zu  B on the wire to each receiver, %.2f %% (%s)",
                   static_cast<int>(kSizeWidth - 1), *row.packed_bytes,
                   100.0 * static_cast<double>(*row.packed_bytes) / static_cast<double>(row.bytes),
                   tutti::compression::to_string(options.compression).c_str());
  }
  return line + "\n";
}

std::string table_foot(std::span<const Row> rows, const Options& options, const Machine& machine,
                       const std::optional<MemorySpeed>& memory) {
  std::string text = memory ? memory_text(options, machine, *memory) : std::string();
  if (!options.check) return text + "# Out of bounds values : not checked\n";
  const std::uint64_t wrong = count_wrong(rows);
  return text + "# Out of bounds values : " + std::to_string(wrong) +
         (wrong == 0 ? " OK\n" : " FAILED\n");
}

namespace {

using Json = nlohmann::ordered_json;

Json config_of(const Options& options) {
  std::string buffers;
  for (const std::string& kind : options.buffers) buffers += (buffers.empty() ? "" : ",") + kind;
  Json config{{"label", nullptr},
              {"collective", options.collective},
              {"backends", options.backends},
              {"min_bytes", options.min_bytes},
              {"max_bytes", options.max_bytes},
              {"step_factor", options.step_factor},
              {"step_bytes", nullptr},
              {"type", dtypes_text(options)},
              {"redop", ops_text(options)},
              {"root", root_text(options)},
              {"iterations", nullptr},
              {"warmup_iterations", options.warmups},
              {"calls_per_iteration", options.calls_per_iteration},
              {"check", options.check},
              {"buffers", buffers},
              {"cache", to_string(options.cache)},
              {"device", options.on_gpu ? "gpu" : "cpu"},
              {"ranks_per_node", options.ranks_per_node},
              {"model", nullptr},
              {"compression", nullptr}};
  if (!options.label.empty()) config["label"] = options.label;
  if (options.step_bytes > 0) config["step_bytes"] = options.step_bytes;
  if (options.iterations) config["iterations"] = *options.iterations;
  if (!options.model.empty()) config["model"] = options.model;
  if (options.compresses()) {
    config["compression"] = tutti::compression::to_string(options.compression);
  }
  return config;
}

Json memory_of(const MemorySpeed& memory, double limit) {
  return {{"per_rank", memory.per_rank_gbs},
          {"total", memory.total_gbs},
          {"array_bytes", memory.array_bytes},
          {"exceeds_cache", memory.exceeds_cache},
          {"busbw_limit", limit}};
}

Json environment_of(const Options& options, const Machine& machine,
                    const std::optional<MemorySpeed>& memory) {
  Json speed;
  if (memory) {
    const Case& chosen = find_case(options.collective);
    speed = memory_of(*memory, busbw_limit(chosen, machine.ranks, memory->per_rank_gbs));
  }
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
          {"tuning", machine.tuning},
          {"memory_gbs", speed}};
}

Json result_of(const Result& result) {
  Json json{{"collective", result.collective},
            {"backend", result.backend},
            {"buffers", result.buffers},
            {"in_place", result.in_place},
            {"bytes", result.bytes},
            {"count", result.count},
            {"type", result.type},
            {"redop", result.redop},
            {"root", result.root},
            {"iterations", result.iterations},
            {"time_us",
             {{"p50", result.time_us.p50},
              {"avg", result.time_us.avg},
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
                    const std::optional<MemorySpeed>& memory) {
  Json results = Json::array();
  for (const Row& row : rows) {
    for (const auto& result : row.results) {
      if (result) results.push_back(result_of(*result));
    }
  }
  const Json whole{{"config", config_of(options)},
                   {"environment", environment_of(options, machine, memory)},
                   {"results", results}};
  // The name of a host or processor may not be UTF-8.
  return whole.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_csv(std::span<const Row> rows, const Options& options) {
  std::ostringstream text;
  text << "collective,backend,buffers,bytes,count,type,redop,iterations,p50_us,min_us,p99_us,"
          "max_us,algbw_gbs,busbw_gbs,wrong,cache,root,in_place,avg_us\n";
  for (const Row& row : rows) {
    for (const auto& result : row.results) {
      if (!result) continue;
      const Times& time = result->time_us;
      text << result->collective << ',' << result->backend << ',' << result->buffers << ','
           << result->bytes << ',' << result->count << ',' << result->type << ',' << result->redop
           << ',' << result->iterations << ',' << time.p50 << ',' << time.min << ',' << time.p99
           << ',' << time.max << ',' << result->algbw_gbs << ',' << result->busbw_gbs << ',';
      if (result->wrong) text << *result->wrong;
      text << ',' << to_string(options.cache) << ',' << result->root << ','
           << (result->in_place ? 1 : 0) << ',' << time.avg << '\n';
    }
  }
  return text.str();
}

}  // namespace apps::benchmark
