// SPDX-License-Identifier: Apache-2.0
#include "support/chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "support/text.hpp"

namespace apps {

namespace {

constexpr int kMaxByteLabels = 7;
constexpr std::array kSteps{1.0, 2.0, 5.0};
constexpr double kShortAxis = 30.0;  // high / low

struct Range {
  double low;
  double high;
};

/// The range of the positive values, which alone have a place on a logarithmic axis.
Range range_of(std::span<const double> values) {
  Range range{0.0, 0.0};
  for (const double value : values) {
    if (!(value > 0.0)) continue;
    range.low = range.low > 0.0 ? std::min(range.low, value) : value;
    range.high = std::max(range.high, value);
  }
  return range.high > 0.0 ? range : Range{1.0, 10.0};
}

}  // namespace

double Axis::position(double value) const { return std::log(value / low) / std::log(high / low); }

namespace {

Axis power_axis(std::span<const double> values, std::string (*label)(double)) {
  const Range range = range_of(values);
  auto first = static_cast<int>(std::floor(std::log2(range.low) + 1e-9));
  auto last = static_cast<int>(std::ceil(std::log2(range.high) - 1e-9));
  if (first == last) {
    --first;
    ++last;
  }
  const int step = (last - first) / kMaxByteLabels + 1;
  Axis axis{.low = std::exp2(first), .high = std::exp2(last), .ticks = {}};
  for (int power = first; power <= last; ++power) {
    const bool labelled = (power - first) % step == 0;
    if (labelled) axis.ticks.push_back({std::exp2(power), label(std::exp2(power)), true});
  }
  return axis;
}

}  // namespace

Axis byte_axis(std::span<const double> values) { return power_axis(values, bytes_text); }

Axis count_axis(std::span<const double> values) { return power_axis(values, count_text); }

Axis decade_axis(std::span<const double> values, Label label) {
  const Range range = range_of(values);
  Axis axis{.low = 0.0, .high = 0.0, .ticks = {}};
  std::vector<double> marks;
  const double first = std::floor(std::log10(range.low)) - 1.0;
  const double last = std::ceil(std::log10(range.high)) + 1.0;
  for (double decade = first; decade <= last; decade += 1.0) {
    for (const double step : kSteps) marks.push_back(step * std::pow(10.0, decade));
  }
  // A little room beyond the outermost points.
  for (const double mark : marks) {
    if (mark <= range.low / 1.1) axis.low = mark;
  }
  axis.high = *std::find_if(marks.begin(), marks.end(),
                            [&](double mark) { return mark >= range.high * 1.1; });
  const bool is_short = axis.high / axis.low < kShortAxis;
  for (std::size_t i = 0; i < marks.size(); ++i) {
    if (marks[i] < axis.low * 0.999 || marks[i] > axis.high * 1.001) continue;
    const bool major = i % kSteps.size() == 0;
    axis.ticks.push_back({marks[i], major || is_short ? label(marks[i]) : std::string(), major});
  }
  return axis;
}

std::string microseconds_label(double value) {
  if (value < 999.0) return format("%.3g µs", value);
  if (value < 999e3) return format("%.3g ms", value / 1e3);
  return format("%.3g s", value / 1e6);
}

std::string plain_label(double value) { return format("%.3g", value); }

namespace {

// --- the panels ----------------------------------------------------------------------------------

constexpr double kWidth = 1140.0;
constexpr double kHeight = 560.0;
constexpr double kPanelWidth = 450.0;
constexpr double kPanelHeight = 330.0;
constexpr double kPanelTop = 168.0;
constexpr double kBottom = kPanelTop + kPanelHeight;
constexpr double kRowHeight = kHeight - kPanelTop + 28.0;  // with the panels' titles
constexpr const char* kInk = "#1f2328";
constexpr const char* kSoftInk = "#57606a";
constexpr const char* kGrid = "#d8dee4";
constexpr const char* kFaintGrid = "#eef1f4";

/// XML's own characters, spelt out.
std::string escaped(std::string_view text) {
  std::string safe;
  for (const char letter : text) {
    if (letter == '<') {
      safe += "&lt;";
    } else if (letter == '>') {
      safe += "&gt;";
    } else if (letter == '&') {
      safe += "&amp;";
    } else {
      safe += letter;
    }
  }
  return safe;
}

struct Place {
  double x;
  double y;
};

std::string line(Place from, Place to, const char* color, double width = 1.0,
                 const char* more = "") {
  return format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" ", from.x, from.y, to.x,
                to.y) +
         format("stroke=\"%s\" stroke-width=\"%.1f\"%s/>\n", color, width, more);
}

std::string dashed(double x1, double y1, double x2, double y2) {
  return line({x1, y1}, {x2, y2}, kSoftInk, 1.6, " stroke-dasharray=\"7 5\"");
}

std::string write(Place at, const std::string& text, int size, const char* color,
                  const char* anchor = "start", const char* more = "") {
  return format("<text x=\"%.1f\" y=\"%.1f\" fill=\"%s\" font-size=\"%d\" text-anchor=\"%s\"%s>",
                at.x, at.y, color, size, anchor, more) +
         escaped(text) + "</text>\n";
}

std::string bold(double x, double y, const std::string& text, int size) {
  return write({x, y}, text, size, kInk, "start", " font-weight=\"600\"");
}

/// Curves on logarithmic axes.
class Panel {
 public:
  Panel(double left, Axis along, Axis values)
      : left_(left), along_(std::move(along)), values_(std::move(values)) {}

  /// The grid, the ticks' labels and the panel's title.
  [[nodiscard]] std::string frame(const PanelText& text) const {
    const double right = left_ + kPanelWidth;
    std::string svg = bold(left_, kPanelTop - 14, text.title, 14);
    for (const Tick& tick : values_.ticks) {
      svg += line({left_, y(tick.value)}, {right, y(tick.value)}, tick.major ? kGrid : kFaintGrid);
      if (tick.label.empty()) continue;
      svg += write({left_ - 9, y(tick.value) + 4}, tick.label, 12, kSoftInk, "end");
    }
    for (const Tick& tick : along_.ticks) {
      svg += line({x(tick.value), kPanelTop}, {x(tick.value), kBottom}, kGrid);
      svg += write({x(tick.value), kBottom + 20}, tick.label, 12, kSoftInk, "middle");
    }
    svg += line({left_, kPanelTop}, {left_, kBottom}, kSoftInk);
    svg += line({left_, kBottom}, {right, kBottom}, kSoftInk);
    return svg + write({left_ + kPanelWidth / 2, kBottom + 44}, text.along, 12, kSoftInk, "middle");
  }

  [[nodiscard]] std::string curve(const Series& series) const {
    std::string path;
    std::string dots;
    for (const Point& point : series.points) {
      if (!(point.value > 0.0)) continue;
      const double at_x = x(point.at);
      const double at_y = y(point.value);
      path += format("%s%.1f %.1f", path.empty() ? "M" : " L", at_x, at_y);
      dots += format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"/>\n", at_x, at_y);
    }
    return "<g class=\"series-" + series.id + "\">\n<path d=\"" + path +
           format("\" fill=\"none\" stroke=\"%s\" stroke-width=\"2.2\"/>\n", series.color) +
           format("<g fill=\"%s\" stroke=\"#ffffff\" stroke-width=\"1\">\n", series.color) + dots +
           "</g>\n</g>\n";
  }

  [[nodiscard]] std::string across(const Level& level) const {
    const double at = y(level.value);
    return dashed(left_, at, left_ + kPanelWidth, at) +
           write({left_ + 8, at - 7}, level.label, 12, kSoftInk);
  }

 private:
  [[nodiscard]] double x(double at) const { return left_ + kPanelWidth * along_.position(at); }
  [[nodiscard]] double y(double value) const {
    return kBottom - kPanelHeight * values_.position(value);
  }

  double left_;
  Axis along_;
  Axis values_;
};

std::string curves(double left, const PanelText& text, const std::vector<Series>& all,
                   const Level& level) {
  std::vector<double> along;
  std::vector<double> values{level.value};
  for (const Series& series : all) {
    for (const Point& point : series.points) {
      along.push_back(point.at);
      values.push_back(point.value);
    }
  }
  const Panel panel(left, text.axis(along), decade_axis(values, text.label));
  std::string svg = panel.frame(text);
  if (level.value > 0.0) svg += panel.across(level);
  std::for_each(all.rbegin(), all.rend(),
                [&](const Series& series) { svg += panel.curve(series); });
  return svg;
}

/// One point each: a bar per series, as long as its value, from 0 on.
std::string bars(double left, const PanelText& text, const std::vector<Series>& all,
                 const Level& level) {
  constexpr double kBar = 44.0;
  constexpr double kGap = 22.0;
  double most = level.value;
  for (const Series& series : all) most = std::max(most, series.points.front().value);
  const double scale = (kPanelWidth - 80.0) / most;  // room for the longest one's value
  std::string svg = bold(left, kPanelTop - 14, text.title, 14);
  double top = kPanelTop + kGap;
  for (const Series& series : all) {
    const double value = series.points.front().value;
    svg += "<g class=\"series-" + series.id + "\">\n" +
           format("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n",
                  left, top, scale * value, kBar, series.color) +
           write({left + scale * value + 8, top + kBar / 2 + 5}, text.label(value), 14, kInk) +
           "</g>\n";
    top += kBar + kGap;
  }
  svg += line({left, kPanelTop}, {left, top}, kSoftInk);
  if (level.value == 0.0) return svg;
  const double at = left + scale * level.value;
  return svg + dashed(at, kPanelTop, at, top) +
         write({at, top + 18}, level.label, 12, kSoftInk, "end");
}

}  // namespace

std::string panel(double left, const PanelText& text, const std::vector<Series>& all,
                  const Level& level) {
  const bool has_values = std::ranges::any_of(all, [](const Series& series) {
    return std::ranges::any_of(series.points, [](const Point& point) { return point.value > 0.0; });
  });
  if (!has_values) {
    return bold(left, kPanelTop - 14, text.title, 14) +
           write({left + kPanelWidth / 2, kPanelTop + kPanelHeight / 2}, text.otherwise, 13,
                 kSoftInk, "middle");
  }
  const bool is_one_size =
      std::ranges::all_of(all, [](const Series& series) { return series.points.size() == 1; });
  return (is_one_size ? bars : curves)(left, text, all, level);
}

namespace {

/// At the upper right, a line and a name per series.
std::string legend_of(const std::vector<Series>& all) {
  std::string svg;
  double at = kRightPanel + kPanelWidth;
  for (std::size_t left = all.size(); left > 0; --left) {
    const Series& series = all[left - 1];
    at -= 8.0 * static_cast<double>(series.name.size());
    svg += write({at, 124}, series.name, 14, kInk);
    svg += line({at - 40, 119}, {at - 10, 119}, series.color, 4.0);
    at -= 64.0;
  }
  return svg;
}

}  // namespace

std::string picture(const std::string& title, std::span<const std::string> lines,
                    const std::vector<Series>& legend, const std::vector<std::string>& rows) {
  const double more_rows = static_cast<double>(rows.size()) - 1.0;
  const double height = kHeight + std::max(0.0, more_rows) * kRowHeight;
  std::string svg = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  svg += format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica, Arial, sans-serif\">\n",
      kWidth, height, kWidth, height);
  svg += "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  svg += bold(kLeftPanel, 38, title, 20);
  double top = 64.0;
  for (const std::string& text : lines) {
    svg += write({kLeftPanel, top}, text, 13, kSoftInk);
    top += 20.0;
  }
  svg += legend_of(legend);
  double down = 0.0;
  for (const std::string& panels : rows) {
    svg += format("<g transform=\"translate(0 %.0f)\">\n", down) + panels + "</g>\n";
    down += kRowHeight;
  }
  return svg + "</svg>\n";
}

}  // namespace apps
