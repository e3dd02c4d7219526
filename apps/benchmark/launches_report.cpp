// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/launches_report.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "support/chart.hpp"
#include "support/text.hpp"

namespace apps::benchmark {
namespace {

using Json = nlohmann::ordered_json;

std::string condition(const Merged& merged, const std::string& name) {
  const auto found =
      std::ranges::find(merged.conditions, name, [](const auto& pair) { return pair.first; });
  return found == merged.conditions.end() || found->second == "none" ? "" : found->second;
}

/// "pushpull of resnet50, float32 sum, 2bit, fresh inputs"
std::string what_text(const Merged& merged) {
  std::string text = condition(merged, "collective");
  if (const auto model = condition(merged, "model"); !model.empty()) text += " of " + model;
  text += ", " + condition(merged, "type");
  if (const auto redop = condition(merged, "redop"); !redop.empty()) text += " " + redop;
  if (const auto packed = condition(merged, "compression"); !packed.empty()) text += ", " + packed;
  return text + ", " + condition(merged, "cache") + " inputs";
}

std::string place_text(const Merged& merged) {
  const std::string nodes = condition(merged, "nodes");
  return condition(merged, "ranks") + " ranks on " + nodes +
         (nodes == "1" ? " node: " : " nodes: ") + condition(merged, "hosts");
}

std::string machine_text(const Merged& merged) {
  return condition(merged, "processor") + ", last-level cache " +
         condition(merged, "last-level cache");
}

std::string versions_text(const Merged& merged) {
  return condition(merged, "library") + ", " + condition(merged, "mpi");
}

std::string configurations_text(const Merged& merged) {
  std::string text;
  for (const Configuration& configuration : merged.configurations) {
    text += (text.empty() ? "" : ", ") + configuration.name + " (" +
            std::to_string(configuration.launches) + ")";
  }
  return text;
}

// --- the table -----------------------------------------------------------------------------------

using Cells = std::vector<std::string>;

std::string time_cell(const std::optional<double>& microseconds) {
  return microseconds ? time_text(*microseconds) : "n/a";
}

std::string ratio_cell(const std::optional<double>& ratio) {
  return ratio ? format("%.2f", *ratio) : "n/a";
}

Cells cells_of(const Line& line) {
  const MpiTime* const best = line.best();
  return {bytes_text(static_cast<double>(line.bytes)),
          time_cell(line.store_us),
          time_cell(line.user_us),
          best == nullptr ? "n/a" : time_text(best->p50_us),
          best == nullptr ? "n/a" : best->configuration,
          ratio_cell(line.store_ratio()),
          ratio_cell(line.user_ratio())};
}

/// Columns as wide as their widest cell. Those of `words` are left-aligned, numbers are not.
std::string table_text(const std::vector<Cells>& rows, const std::vector<std::size_t>& words) {
  const auto is_words = [&](std::size_t column) {
    return std::ranges::find(words, column) != words.end();
  };
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Cells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const auto line_of = [&](const Cells& row) {
    std::string text;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      text += is_words(i) ? "| " + row[i] + padding + " " : "| " + padding + row[i] + " ";
    }
    return text + "|\n";
  };
  std::string text = line_of(rows.front());
  for (std::size_t i = 0; i < widths.size(); ++i) {
    text += "|" + std::string(widths[i] + 1, '-') + (is_words(i) ? "-" : ":");
  }
  text += "|\n";
  for (std::size_t i = 1; i < rows.size(); ++i) text += line_of(rows[i]);
  return text;
}

std::string means_text(const Merged& merged) {
  std::vector<Cells> rows{{"geometric mean of", "ratio, store", "ratio, ordinary"}};
  for (const Band& band : bands()) {
    const Means means = means_of(merged, band);
    if (!means.store && !means.user) continue;
    rows.push_back({band.name, ratio_cell(means.store), ratio_cell(means.user)});
  }
  return table_text(rows, {0});
}

std::string verdict_text(const Merged& merged) {
  std::string text = "Wrong elements: " + std::to_string(merged.wrong);
  if (merged.wrong > 0) return text + ", FAILED.\n";
  return merged.checked ? text + ".\n" : "Wrong elements: not every result was checked.\n";
}

// --- JSON ----------------------------------------------------------------------------------------

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json json_of(const Line& line) {
  Json mpi = Json::object();
  Json ratios = Json::object();
  for (const MpiTime& time : line.mpi) {
    mpi[time.configuration] = time.p50_us;
    ratios[time.configuration] = {{"store", json_of(time.store_ratio)},
                                  {"user", json_of(time.user_ratio)}};
  }
  const MpiTime* const best = line.best();
  return {{"bytes", line.bytes},
          {"store_us", json_of(line.store_us)},
          {"user_us", json_of(line.user_us)},
          {"mpi_us", mpi},
          {"mpi_ratios", ratios},
          {"best", best == nullptr ? Json() : Json(best->configuration)},
          {"store_ratio", json_of(line.store_ratio())},
          {"user_ratio", json_of(line.user_ratio())}};
}

}  // namespace

std::string to_markdown(const Merged& merged, std::span<const std::string> notes) {
  std::string text =
      "### " + what_text(merged) + ": Tutti and the best of MPI's configurations\n\n";
  text += "- " + place_text(merged) + "; " + machine_text(merged) + "\n";
  text += "- " + versions_text(merged) + "; " + merged.started + "\n";
  text += "- Configurations (launches): " + configurations_text(merged) + "\n";
  for (const std::string& note : notes) text += "- " + note + "\n";
  text +=
      "- Microseconds: p50, the longest over the ranks; Tutti's the median over all launches, "
      "MPI's over those of a configuration\n"
      "- Ratio: best MPI / Tutti of one launch, then the median over the launches of that "
      "configuration\n\n";
  std::vector<Cells> rows{{"size", "Tutti, store", "Tutti, ordinary", "best MPI", "which",
                           "ratio, store", "ratio, ordinary"}};
  for (const Line& line : merged.lines) rows.push_back(cells_of(line));
  text += table_text(rows, {0, 4}) + "\n" + means_text(merged) + "\n";
  for (const std::string& missing : merged.missing) text += "**Missing:** " + missing + "\n\n";
  return text + verdict_text(merged);
}

std::string to_json(const Merged& merged, std::span<const std::string> notes) {
  Json whole{{"conditions", Json::object()},
             {"started", merged.started},
             {"notes", notes},
             {"missing", merged.missing},
             {"configurations", Json::array()},
             {"results", Json::array()},
             {"geometric_means", Json::array()},
             {"wrong", nullptr}};
  for (const auto& [name, text] : merged.conditions) whole["conditions"][name] = text;
  for (const Configuration& configuration : merged.configurations) {
    whole["configurations"].push_back(
        {{"name", configuration.name}, {"launches", configuration.launches}});
  }
  for (const Line& line : merged.lines) whole["results"].push_back(json_of(line));
  for (const Band& band : bands()) {
    const Means means = means_of(merged, band);
    whole["geometric_means"].push_back(
        {{"sizes", band.name}, {"store", json_of(means.store)}, {"user", json_of(means.user)}});
  }
  if (merged.checked) whole["wrong"] = merged.wrong;
  return whole.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// --- the picture ---------------------------------------------------------------------------------

namespace {

/// `value_of(line)` is an optional. Series without a value are left out.
template <class ValueOf>
void add_series(std::vector<Series>& all, Series series, const Merged& merged, ValueOf value_of) {
  for (const Line& line : merged.lines) {
    const auto value = value_of(line);
    if (value) series.points.push_back({static_cast<double>(line.bytes), *value});
  }
  if (!series.points.empty()) all.push_back(std::move(series));
}

std::optional<double> best_us(const Line& line) {
  const MpiTime* const best = line.best();
  return best == nullptr ? std::nullopt : std::optional(best->p50_us);
}

}  // namespace

std::string to_svg(const Merged& merged) {
  const Series store{.id = "store", .name = "Tutti, store's memory", .color = kBlue, .points = {}};
  const Series user{.id = "user", .name = "Tutti, ordinary memory", .color = kPurple, .points = {}};
  const Series mpi{.id = "mpi", .name = "MPI, best configuration", .color = kOrange, .points = {}};
  std::vector<Series> times;
  add_series(times, store, merged, [](const Line& line) { return line.store_us; });
  add_series(times, user, merged, [](const Line& line) { return line.user_us; });
  add_series(times, mpi, merged, best_us);
  std::vector<Series> ratios;
  add_series(ratios, store, merged, [](const Line& line) { return line.store_ratio(); });
  add_series(ratios, user, merged, [](const Line& line) { return line.user_ratio(); });
  const std::array lines{place_text(merged) + "  ·  " + machine_text(merged),
                         versions_text(merged) + "  ·  " + merged.started};
  const PanelText time{"time, median (lower is better)", microseconds_label, "no time"};
  const PanelText ratio{"time of the best MPI / time of Tutti (higher is better)", plain_label,
                        "nothing to compare"};
  return picture(what_text(merged), lines, times,
                 {panel(kLeftPanel, time, times) +
                  panel(kRightPanel, ratio, ratios, {1.0, "as fast as the best MPI"})});
}

}  // namespace apps::benchmark
