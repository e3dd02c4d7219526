// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/axis.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "apps/benchmark/text.hpp"

namespace apps::benchmark {
namespace {

constexpr int kMaxByteLabels = 7;
constexpr std::array kSteps{1.0, 2.0, 5.0};
constexpr double kShortAxis = 30.0;  // high / low

struct Range {
  double low;
  double high;
};

/// Of the positive values, which alone have a place on a logarithmic axis.
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

Axis byte_axis(std::span<const double> values) {
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
    if (labelled) axis.ticks.push_back({std::exp2(power), bytes_text(std::exp2(power)), true});
  }
  return axis;
}

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
  if (value < 999.0) return format("%g µs", value);
  if (value < 999e3) return format("%g ms", value / 1e3);
  return format("%g s", value / 1e6);
}

std::string plain_label(double value) { return format("%g", value); }

}  // namespace apps::benchmark
