// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/plot.hpp"

#include <array>
#include <utility>
#include <vector>

#include "apps/benchmark/cases.hpp"
#include "support/chart.hpp"
#include "support/text.hpp"

namespace apps::benchmark {

namespace {

constexpr PanelText kTime{"time, median (lower is better)", microseconds_label, "no time"};
constexpr PanelText kSpeed{"bus bandwidth, GB/s (higher is better)", plain_label,
                           "one rank alone uses no bus"};

const char* color_of(const Contender& contender) {
  if (contender.backend == "tutti") return contender.buffers == "user" ? kPurple : kBlue;
  return contender.backend == "mpi" ? kOrange : kGreen;
}

std::string name_of(const Contender& contender, const Options& options, const Machine& machine) {
  if (contender.backend == "mpi") return machine.mpi;
  if (contender.backend == "nccl") return "NCCL";
  return options.buffers.size() > 1 ? "Tutti, " + contender.buffers + " memory" : "Tutti";
}

/// "tutti", or "tutti-user" where there are several.
std::string id_of(const Contender& contender, const Options& options) {
  const bool is_one_of_two = contender.backend == "tutti" && options.buffers.size() > 1;
  return is_one_of_two ? "tutti-" + contender.buffers : contender.backend;
}

/// The contenders that have results.
std::vector<Series> series_of(std::span<const Row> rows, const Options& options,
                              const Machine& machine, double (*value_of)(const Result&)) {
  std::vector<Series> all;
  for (const Contender& contender : options.contenders()) {
    Series series{.id = id_of(contender, options),
                  .name = name_of(contender, options, machine),
                  .color = color_of(contender),
                  .points = {}};
    for (const Row& row : rows) {
      const Result* const result = find_result(row, contender);
      if (result == nullptr) continue;
      series.points.push_back({static_cast<double>(row.bytes), value_of(*result)});
    }
    if (!series.points.empty()) all.push_back(std::move(series));
  }
  return all;
}

Level limit_of(const Options& options, const Machine& machine,
               const std::optional<MemorySpeed>& memory) {
  if (!memory) return {};
  const double limit =
      busbw_limit(find_case(options.collective), machine.ranks, memory->per_rank_gbs);
  return {limit,
          format("beyond the caches %s %.3g GB/s",
                 memory->exceeds_cache ? "memory allows" : "memory (or a cache) allows", limit)};
}

std::string title_of(const Options& options) {
  std::string text = options.collective;
  if (!options.model.empty()) text += " of " + options.model;
  text += std::string(", ") + to_string(options.dtype);
  if (find_case(options.collective).reduces) text += std::string(" ") + to_string(options.op);
  return text + ", " + to_string(options.cache) + " inputs";
}

std::string buffers_of(std::span<const Row> rows, const Options& options) {
  std::string text;
  for (const Contender& contender : options.contenders()) {
    if (find_result(rows.front(), contender) == nullptr) continue;
    text += "  ·  " + contender.backend + ": " + contender.buffers + " buffers" +
            (contender.in_place ? ", in place" : "");
    if (contender.backend == "tutti" && options.compresses()) {
      text += ", " + tutti::compression::to_string(options.compression);
    }
  }
  return text;
}

}  // namespace

std::string to_svg(std::span<const Row> rows, const Options& options, const Machine& machine,
                   const std::optional<MemorySpeed>& memory) {
  const auto times =
      series_of(rows, options, machine, [](const Result& r) { return r.time_us.p50; });
  const auto speeds =
      series_of(rows, options, machine, [](const Result& r) { return r.busbw_gbs; });
  const std::array lines{
      place_text(machine) + buffers_of(rows, options),
      machine.processor + ", last-level cache " +
          bytes_text(static_cast<double>(machine.cache_bytes)) + ", " + machine.vector_instructions,
      machine.library + "  ·  " + machine.mpi + "  ·  " + machine.started,
  };
  return picture(title_of(options), lines, times,
                 {panel(kLeftPanel, kTime, times) +
                  panel(kRightPanel, kSpeed, speeds, limit_of(options, machine, memory))});
}

}  // namespace apps::benchmark
