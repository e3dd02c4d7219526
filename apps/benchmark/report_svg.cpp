// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/report_svg.hpp"

#include <algorithm>
#include <ranges>
#include <string_view>
#include <vector>

#include "apps/benchmark/axis.hpp"
#include "apps/benchmark/cases.hpp"
#include "apps/benchmark/text.hpp"

namespace apps::benchmark {
namespace {

constexpr double kWidth = 1140.0;
constexpr double kHeight = 520.0;
constexpr double kPanelWidth = 450.0;
constexpr double kPanelHeight = 330.0;
constexpr double kPanelTop = 128.0;
constexpr double kTimeLeft = 78.0;
constexpr double kSpeedLeft = 640.0;
constexpr const char* kInk = "#1f2328";
constexpr const char* kSoftInk = "#57606a";
constexpr const char* kGrid = "#d8dee4";
constexpr const char* kFaintGrid = "#eef1f4";
constexpr const char* kMemoryColor = "#6e7781";

struct Point {
  double size = 0.0;
  double value = 0.0;
};

struct Series {
  std::string name;
  const char* color = kInk;
  std::vector<Point> points;
};

const char* color_of(const std::string& backend) {
  if (backend == "tutti") return "#0a62c9";
  return backend == "mpi" ? "#d1600a" : "#4f8a10";
}

/// XML's own characters, spelt out.
std::string escaped(std::string_view text) {
  std::string safe;
  for (const char letter : text) {
    switch (letter) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      default:
        safe += letter;
    }
  }
  return safe;
}

std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" ", x1, y1, x2, y2) + style +
         "/>\n";
}

/// `style`: attributes, such as an anchor and a font size.
std::string text_at(double x, double y, const std::string& text, const std::string& style) {
  return format("<text x=\"%.1f\" y=\"%.1f\" ", x, y) + style + ">" + escaped(text) + "</text>\n";
}

std::string stroke(const char* color, double width, const char* dashes = nullptr) {
  return format("stroke=\"%s\" stroke-width=\"%.1f\"", color, width) +
         (dashes == nullptr ? "" : format(" stroke-dasharray=\"%s\"", dashes));
}

std::string fill(const char* color, int size, const char* anchor = "start") {
  return format("fill=\"%s\" font-size=\"%d\" text-anchor=\"%s\"", color, size, anchor);
}

class Panel {
 public:
  Panel(double left, Axis sizes, Axis values)
      : left_(left), sizes_(std::move(sizes)), values_(std::move(values)) {}

  /// The grid, the ticks' labels and the panel's title.
  [[nodiscard]] std::string frame(const std::string& title) const {
    const double right = left_ + kPanelWidth;
    const double bottom = kPanelTop + kPanelHeight;
    std::string svg =
        text_at(left_, kPanelTop - 14, title, fill(kInk, 14) + " font-weight=\"600\"");
    for (const Tick& tick : values_.ticks) {
      const double at = y(tick.value);
      svg += line(left_, at, right, at, stroke(tick.major ? kGrid : kFaintGrid, 1.0).c_str());
      if (!tick.label.empty()) {
        svg += text_at(left_ - 9, at + 4, tick.label, fill(kSoftInk, 12, "end"));
      }
    }
    for (const Tick& tick : sizes_.ticks) {
      const double at = x(tick.value);
      svg += line(at, kPanelTop, at, bottom, stroke(kGrid, 1.0).c_str());
      svg += text_at(at, bottom + 20, tick.label, fill(kSoftInk, 12, "middle"));
    }
    svg += line(left_, kPanelTop, left_, bottom, stroke(kSoftInk, 1.0).c_str());
    svg += line(left_, bottom, right, bottom, stroke(kSoftInk, 1.0).c_str());
    return svg + text_at(left_ + kPanelWidth / 2, bottom + 44, "message size",
                         fill(kSoftInk, 12, "middle"));
  }

  [[nodiscard]] std::string curve(const Series& series) const {
    std::string path;
    std::string dots;
    for (const Point& point : series.points) {
      if (!(point.value > 0.0)) continue;  // as the busbw of one rank
      path += format("%s%.1f %.1f", path.empty() ? "M" : " L", x(point.size), y(point.value));
      dots +=
          format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"/>\n", x(point.size), y(point.value));
    }
    if (path.empty()) return {};
    return "<g class=\"series-" + series.name + "\">\n<path d=\"" + path + "\" fill=\"none\" " +
           stroke(series.color, 2.2) + " stroke-linejoin=\"round\"/>\n" +
           format("<g fill=\"%s\" stroke=\"#ffffff\" stroke-width=\"1\">\n", series.color) + dots +
           "</g>\n</g>\n";
  }

  /// A dashed line across the panel, with its name above it.
  [[nodiscard]] std::string level(double value, const std::string& name) const {
    return line(left_, y(value), left_ + kPanelWidth, y(value),
                stroke(kMemoryColor, 1.6, "7 5").c_str()) +
           text_at(left_ + 8, y(value) - 7, name, fill(kMemoryColor, 12));
  }

  /// In the middle of a panel that has no curve.
  [[nodiscard]] std::string remark(const std::string& text) const {
    return text_at(left_ + kPanelWidth / 2, kPanelTop + kPanelHeight / 2, text,
                   fill(kSoftInk, 13, "middle"));
  }

 private:
  [[nodiscard]] double x(double size) const { return left_ + kPanelWidth * sizes_.position(size); }
  [[nodiscard]] double y(double value) const {
    return kPanelTop + kPanelHeight * (1.0 - values_.position(value));
  }

  double left_;
  Axis sizes_;
  Axis values_;
};

std::vector<Series> series_of(std::span<const Row> rows, const Options& options,
                              double (*value_of)(const Result&)) {
  std::vector<Series> all;
  for (const std::string& backend : options.backends) {
    Series series{backend, color_of(backend), {}};
    for (const Row& row : rows) {
      const Result* const result = find_result(row, backend);
      if (result == nullptr) continue;
      series.points.push_back({static_cast<double>(row.bytes), value_of(*result)});
    }
    all.push_back(std::move(series));
  }
  return all;
}

std::vector<double> values_of(const std::vector<Series>& all) {
  std::vector<double> values;
  for (const Series& series : all) {
    for (const Point& point : series.points) values.push_back(point.value);
  }
  return values;
}

std::string title_of(const Options& options) {
  std::string text = options.collective;
  if (!options.model.empty()) text += " of " + options.model;
  text += std::string(", ") + to_string(options.dtype);
  if (find_case(options.collective).reduces) text += std::string(" ") + to_string(options.op);
  return text;
}

std::string subtitle_of(const Options& options, const Machine& machine) {
  constexpr std::size_t kNamedHosts = 3;
  const std::size_t named = std::min(machine.hosts.size(), kNamedHosts);
  std::string hosts = hosts_text(
      {machine.hosts.begin(), machine.hosts.begin() + static_cast<std::ptrdiff_t>(named)});
  if (named < machine.hosts.size()) {
    hosts += " and " + std::to_string(machine.hosts.size() - named) + " more hosts";
  }
  return std::to_string(machine.ranks) + (machine.ranks == 1 ? " rank on " : " ranks on ") +
         std::to_string(machine.nodes) + (machine.nodes == 1 ? " node: " : " nodes: ") + hosts +
         "  ·  " + (options.on_gpu ? "gpu" : options.buffers) + " buffers  ·  " +
         (options.cold ? "cold" : "hot") + " cache";
}

std::string name_of(const std::string& backend, const Machine& machine) {
  if (backend == "mpi") return machine.mpi;
  return backend == "nccl" ? "NCCL" : "Tutti";
}

/// At the upper right, a line and a name per backend that has results.
std::string legend(std::span<const Row> rows, const Options& options, const Machine& machine) {
  std::string svg;
  double at = kSpeedLeft + kPanelWidth;
  for (const std::string& backend : std::views::reverse(options.backends)) {
    if (find_result(rows.front(), backend) == nullptr) continue;
    const std::string name = name_of(backend, machine);
    at -= 8.0 * static_cast<double>(name.size());
    svg += text_at(at, 38, name, fill(kInk, 14));
    svg += line(at - 40, 33, at - 10, 33, stroke(color_of(backend), 2.2).c_str());
    svg += format("<circle cx=\"%.1f\" cy=\"33\" r=\"3.2\" fill=\"%s\"/>\n", at - 25,
                  color_of(backend));
    at -= 64.0;
  }
  return svg;
}

std::string time_panel(std::span<const Row> rows, const Options& options, const Axis& sizes) {
  const auto all = series_of(rows, options, [](const Result& r) { return r.time_us.p50; });
  const Panel panel(kTimeLeft, sizes, decade_axis(values_of(all), microseconds_label));
  std::string svg = panel.frame("time, median (lower is better)");
  for (const Series& series : all) svg += panel.curve(series);
  return svg;
}

std::string speed_panel(std::span<const Row> rows, const Options& options, const Axis& sizes,
                        const MemorySpeed& memory) {
  const auto all = series_of(rows, options, [](const Result& r) { return r.busbw_gbs; });
  std::vector<double> values = values_of(all);
  values.push_back(memory.per_rank_gbs);
  const Panel panel(kSpeedLeft, sizes, decade_axis(values, plain_label));
  std::string svg = panel.frame("bus bandwidth, GB/s (higher is better)");
  svg += panel.level(memory.per_rank_gbs,
                     format("memory: %.1f GB/s per rank (add)", memory.per_rank_gbs));
  std::string curves;
  for (const Series& series : all) curves += panel.curve(series);
  return svg + (curves.empty() ? panel.remark("one rank alone uses no bus") : curves);
}

}  // namespace

std::string to_svg(std::span<const Row> rows, const Options& options, const Machine& machine,
                   const MemorySpeed& memory) {
  std::vector<double> bytes;
  for (const Row& row : rows) bytes.push_back(static_cast<double>(row.bytes));
  const Axis sizes = byte_axis(bytes);
  std::string svg = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  svg += format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica, Arial, sans-serif\">\n",
      kWidth, kHeight, kWidth, kHeight);
  svg += "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  svg += text_at(kTimeLeft, 38, title_of(options), fill(kInk, 20) + " font-weight=\"600\"");
  svg += text_at(kTimeLeft, 64, subtitle_of(options, machine), fill(kSoftInk, 13));
  svg += text_at(kTimeLeft, 84, machine.processor, fill(kSoftInk, 13));
  svg += legend(rows, options, machine);
  svg += time_panel(rows, options, sizes);
  svg += speed_panel(rows, options, sizes, memory);
  return svg + "</svg>\n";
}

}  // namespace apps::benchmark
