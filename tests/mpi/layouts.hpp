// SPDX-License-Identifier: Apache-2.0
// Layouts of the job's ranks over virtual nodes.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "tests/support/mpi_test.hpp"

namespace test {

using Layout = std::vector<int>;  // ranks per node, one entry per node

inline std::string to_string(const Layout& layout) {
  std::string text;
  for (const int ranks : layout) text += (text.empty() ? "" : ",") + std::to_string(ranks);
  return text;
}

inline Layout one_node() { return {size()}; }

/// Nodes of an equal power of two of ranks: 8 ranks give 1x8, 2x4, 4x2 and 8x1, 6 give 1x6, 3x2,
/// 6x1.
inline std::vector<Layout> equal_blocks() {
  std::vector<Layout> layouts = {one_node()};
  for (int block = 1; block < size(); block *= 2) {
    if (size() % block == 0) layouts.emplace_back(static_cast<std::size_t>(size() / block), block);
  }
  return layouts;
}

/// Layouts with nodes of different sizes, or of sizes that are no power of two.
inline std::vector<Layout> uneven() {
  std::vector<Layout> layouts;
  for (const Layout& start :
       {Layout{1}, Layout{3}, Layout{5}, Layout{1, 1}, Layout{2, 1}, Layout{3, 3}, Layout{1, 5}}) {
    const int rest = size() - std::accumulate(start.begin(), start.end(), 0);
    if (rest < 1) continue;
    layouts.push_back(start);
    layouts.back().push_back(rest);
  }
  return layouts;
}

inline std::vector<Layout> all_layouts() {
  std::vector<Layout> layouts = equal_blocks();
  for (const Layout& layout : uneven()) layouts.push_back(layout);
  return layouts;
}

inline tutti::Settings settings_for(const Layout& layout, bool reproducible = false) {
  tutti::Settings with = settings();
  with.ranks_per_node = layout;
  with.reproducible = reproducible;
  return with;
}

}  // namespace test
