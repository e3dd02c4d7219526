// SPDX-License-Identifier: Apache-2.0
#include "apps/simulator/plot.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include <tutti/tutti.hpp>

#include "support/chart.hpp"
#include "support/text.hpp"

namespace apps::simulator {

namespace {

constexpr std::array kColors{kBlue, kOrange, kGreen, kPurple, kGrey};

/// What all results have of one kind, each once, in their order.
template <class Of>
auto each_of(std::span<const Measured> all, Of of) {
  std::vector<decltype(of(all.front()))> found;
  for (const Measured& one : all) {
    if (std::find(found.begin(), found.end(), of(one)) == found.end()) found.push_back(of(one));
  }
  return found;
}

std::string title_of(const Case& what) {
  return what.collective + (what.compression == "none" ? "" : " " + what.compression) +
         ", float32 sum" + (what.buffers == "store" ? ", memory of the node" : "");
}

std::vector<std::string> algorithms_of(std::span<const Measured> all) {
  return each_of(all, [](const Measured& one) { return one.what.algorithm; });
}

std::vector<Series> series_of(std::span<const Measured> all, std::size_t bytes) {
  std::vector<Series> series;
  for (const std::string& algorithm : algorithms_of(all)) {
    const char* const color = kColors[series.size() % kColors.size()];
    series.push_back({.id = algorithm, .name = algorithm, .color = color, .points = {}});
    for (const Measured& one : all) {
      if (one.what.algorithm != algorithm || one.what.bytes != bytes) continue;
      series.back().points.push_back(
          {static_cast<double>(one.what.nodes), one.seconds * kMicroseconds});
    }
    std::ranges::sort(series.back().points, {}, &Point::at);
  }
  return series;
}

std::string panel_of(std::span<const Measured> all, std::size_t bytes, double left) {
  const std::string title =
      bytes_text(static_cast<double>(bytes)) + ": time, slowest rank (lower is better)";
  const PanelText text{.title = title.c_str(),
                       .label = microseconds_label,
                       .otherwise = "no time",
                       .along = "nodes",
                       .axis = count_axis};
  return panel(left, text, series_of(all, bytes));
}

}  // namespace

std::string to_svg(std::span<const Measured> all, const std::string& network) {
  const auto sizes = each_of(all, [](const Measured& one) { return one.what.bytes; });
  std::vector<std::string> rows;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i % 2 == 0) rows.emplace_back();
    rows.back() += panel_of(all, sizes[i], i % 2 == 0 ? kLeftPanel : kRightPanel);
  }
  const int per_node = all.front().what.ranks_per_node;
  const std::array lines{
      network + "  ·  " + std::to_string(per_node) + (per_node == 1 ? " rank" : " ranks") +
          " per node",
      std::string("simulated: no machine was measured"),
      "tutti " + std::string(tutti::version()),
  };
  return picture(title_of(all.front().what), lines, series_of(all, sizes.front()), rows);
}

}  // namespace apps::simulator
