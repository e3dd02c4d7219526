// SPDX-License-Identifier: Apache-2.0
// The order of a sum, and the layout of fused calls.
#include "collectives/job/tree.hpp"

#include <algorithm>
#include <doctest/doctest.h>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/job/fused_layout.hpp"
#include "unit/threads.hpp"

using namespace tutti::collectives;
using tutti::DType;

namespace {

/// A sum that remembers its order: "((0+1)+2)".
struct Expression {
  std::string text;
  friend Expression operator+(const Expression& left, const Expression& right) {
    return {"(" + left.text + "+" + right.text + ")"};
  }
};

std::vector<Expression> leaves(const std::vector<int>& ranks) {
  std::vector<Expression> expressions;
  for (const int rank : ranks) expressions.push_back({std::to_string(rank)});
  return expressions;
}

std::string canonical(int n) {
  std::vector<int> ranks(n);
  std::iota(ranks.begin(), ranks.end(), 0);
  return test::tree_sum(leaves(ranks), 0, ranks.size()).text;
}

/// The expression that the ranks of these nodes compute when they follow a plan.
std::string carried_out(const CombinePlan& plan, const std::vector<std::vector<int>>& nodes) {
  std::vector<Expression> values;
  for (std::size_t i = 0; i < plan.num_partials(); ++i) {
    const Partial partial = plan.partial(i);
    values.push_back(test::tree_sum(leaves(nodes[partial.node]), partial.first, partial.count));
  }
  plan.for_each_step([&](int left, int right) { values[left] = values[left] + values[right]; });
  return values[0].text;
}

std::vector<std::vector<int>> consecutive(const std::vector<int>& sizes) {
  std::vector<std::vector<int>> nodes;
  int next = 0;
  for (const int size : sizes) {
    nodes.emplace_back(size);
    std::iota(nodes.back().begin(), nodes.back().end(), next);
    next += size;
  }
  return nodes;
}

bool equal_powers_of_two(const std::vector<int>& sizes) {
  const auto one = static_cast<unsigned>(sizes.front());
  return std::all_of(sizes.begin(), sizes.end(), [&](int size) { return size == sizes.front(); }) &&
         (one & (one - 1)) == 0;
}

}  // namespace

TEST_CASE("the left subtree is the largest power of two below n") {
  CHECK(canonical(2) == "(0+1)");
  CHECK(canonical(3) == "((0+1)+2)");
  CHECK(canonical(6) == "(((0+1)+(2+3))+(4+5))");
  for (const auto& [n, left] : {std::pair{2, 1}, {3, 2}, {4, 2}, {5, 4}, {8, 4}, {9, 8}}) {
    CHECK(split_point(n) == left);
  }
}

TEST_CASE("a plan by rank is the canonical tree for every layout of up to 9 ranks") {
  for (int n = 1; n <= 9; ++n) {
    for (const auto& sizes : test::layouts_of(n)) {
      const auto nodes = consecutive(sizes);
      CHECK(carried_out(CombinePlan::by_rank(nodes), nodes) == canonical(n));
    }
  }
}

TEST_CASE("a plan by rank is the canonical tree when ranks are dealt out round robin") {
  const std::vector<std::vector<int>> nodes{{0, 2, 4, 6}, {1, 3, 5, 7}};
  CHECK(carried_out(CombinePlan::by_rank(nodes), nodes) == canonical(8));
}

TEST_CASE("a plan by node is the canonical tree for nodes of an equal power of two") {
  int such_layouts = 0;
  for (int n = 1; n <= 9; ++n) {
    for (const auto& sizes : test::layouts_of(n)) {
      if (!equal_powers_of_two(sizes)) continue;
      ++such_layouts;
      const auto nodes = consecutive(sizes);
      CHECK(carried_out(CombinePlan::by_node(nodes), nodes) == canonical(n));
    }
  }
  CHECK(such_layouts > 12);
}

TEST_CASE("a plan by node sends one partial sum per node, in any layout") {
  for (const auto& sizes : test::layouts_of(7)) {
    const auto nodes = consecutive(sizes);
    const CombinePlan plan = CombinePlan::by_node(nodes);
    std::size_t steps = 0;
    plan.for_each_step([&](int, int) { ++steps; });
    CHECK(plan.num_partials() == nodes.size());
    CHECK(steps == nodes.size() - 1);
  }
}

TEST_CASE("only a plan of one partial sum per node, in the tree of nodes, is summed on the way") {
  const auto is_one = [](const std::vector<int>& sizes, bool reproducible) {
    const auto nodes = consecutive(sizes);
    return plan_for(nodes, reproducible).is_tree_of_nodes();
  };
  CHECK(is_one({3, 1, 2}, false));
  CHECK(is_one({2, 2, 2}, true));
  CHECK_FALSE(is_one({3, 3}, true));     // several partial sums
  CHECK_FALSE(is_one({4, 2, 2}, true));  // n0 + (n1 + n2)
}

TEST_CASE("the partial sums of one node are neighbours in the plan") {
  const std::vector<std::vector<int>> nodes{{0, 2, 5}, {1, 3, 4}};
  const CombinePlan plan = CombinePlan::by_rank(nodes);
  std::size_t next = 0;
  for (int node = 0; node < 2; ++node) {
    CHECK(plan.first_of(node) == next);
    CHECK(plan.count_of(node) > 1);
    for (std::size_t i = 0; i < plan.count_of(node); ++i) CHECK(plan.partial(next++).node == node);
  }
  CHECK(next == plan.num_partials());
}

namespace {

std::vector<Segment> segments_of(const std::vector<std::size_t>& counts, DType dtype) {
  std::vector<Segment> segments;
  for (const std::size_t count : counts) segments.push_back({nullptr, nullptr, count, dtype});
  return segments;
}

/// The number of visits of each element when the layout is walked in chunks.
std::vector<std::vector<int>> visits(const FusedLayout& layout, std::size_t chunk_bytes) {
  std::vector<std::vector<int>> seen;
  for (const Segment& segment : layout.segments()) seen.emplace_back(segment.count, 0);
  for (std::size_t begin = 0; begin < layout.total(); begin += chunk_bytes) {
    const Range chunk{begin, std::min(layout.total(), begin + chunk_bytes)};
    layout.for_each_part(chunk, [&](const FusedLayout::Part& part) {
      for (std::size_t i = 0; i < part.count; ++i) ++seen[part.segment][part.first + i];
    });
  }
  return seen;
}

}  // namespace

TEST_CASE("walking in chunks of any size visits every element of every segment once") {
  const auto segments = segments_of({0, 1, 17, 0, 1000, 16, 3, 0}, DType::float32);
  FusedLayout layout;
  for (const bool wide : {false, true}) {
    layout.assign(segments, wide);
    for (const std::size_t chunk : {64u, 128u, 640u, 4096u, 1u << 20}) {
      for (const auto& segment : visits(layout, chunk)) {
        CHECK(segment == std::vector<int>(segment.size(), 1));
      }
    }
  }
}

TEST_CASE("interleaved segments are visited once, and each strip has its part of every stream") {
  const auto segments = segments_of({0, 1000, 17, 4000, 0, 2000, 3, 777}, DType::bfloat16);
  const FusedLayout::Streams streams{{5, 0, 3, 7, 1, 2, 4, 6}, {2, 4, 4, 8}};
  FusedLayout layout;
  for (const bool wide : {false, true}) {
    for (const std::size_t strips : {1u, 2u, 7u, 1000u}) {
      layout.assign(segments, wide);
      const std::size_t total = layout.total();
      layout.interleave(streams, strips);
      CHECK(layout.total() == total);
      for (const std::size_t chunk : {64u, 640u, 4096u, 1u << 20}) {
        for (const auto& segment : visits(layout, chunk)) {
          CHECK(segment == std::vector<int>(segment.size(), 1));
        }
      }
    }
  }
  layout.assign(segments, false);
  layout.interleave(streams, 2);
  std::vector<std::size_t> of_half(segments.size());
  // Lines of 32 elements: 31 of 63 of the first stream, 75 of 150 and 17 of 34.
  layout.for_each_part({0, 123 * FusedLayout::kAlignment},
                       [&](const FusedLayout::Part& part) { of_half[part.segment] += part.count; });
  CHECK(of_half == std::vector<std::size_t>{0, 544, 0, 2400, 0, 992, 0, 0});
}

TEST_CASE("narrow elements of interleaved segments lie apart in a slot of their chunk") {
  const auto segments = segments_of({500, 500, 500}, DType::bfloat16);
  FusedLayout layout;
  layout.assign(segments, true);
  layout.interleave({{0, 1, 2}, {1, 2, 3}}, 4);
  for (std::size_t begin = 0; begin < layout.total(); begin += 1024) {
    const Range chunk{begin, std::min(layout.total(), begin + 1024)};
    std::vector<int> used(chunk.size(), 0);
    layout.for_each_part(chunk, [&](const FusedLayout::Part& part) {
      for (std::size_t i = 0; i < 2 * part.count; ++i) ++used[layout.slot_offset(part, chunk) + i];
    });
    CHECK(*std::ranges::max_element(used) == 1);
  }
}

TEST_CASE("segments begin at multiples of the alignment") {
  const auto segments = segments_of({1, 33, 7}, DType::int8);
  FusedLayout layout;
  layout.assign(segments, false);
  layout.for_each_part({0, layout.total()}, [](const FusedLayout::Part& part) {
    CHECK(part.position % FusedLayout::kAlignment == 0);
  });
  CHECK(layout.total() == 3 * FusedLayout::kAlignment);
}

TEST_CASE("a wide layout gives 16-bit elements the room of float32") {
  const auto segments = segments_of({64}, DType::bfloat16);
  FusedLayout layout;
  layout.assign(segments, false);
  CHECK(layout.total() == 128);
  CHECK(layout.wire(0) == DType::bfloat16);
  layout.assign(segments, true);
  CHECK(layout.total() == 256);
  CHECK(layout.wire(0) == DType::float32);
}

TEST_CASE("shares are disjoint, aligned, in order, and cover the range") {
  for (const std::size_t bytes : {0u, 64u, 128u, 192u, 6400u, 1u << 20}) {
    for (int parts = 1; parts <= 9; ++parts) {
      std::size_t at = 128;
      for (int i = 0; i < parts; ++i) {
        const Range share = share_of({128, 128 + bytes}, parts, i);
        CHECK(share.begin == at);
        CHECK(share.begin % FusedLayout::kAlignment == 0);
        at = share.end;
      }
      CHECK(at == 128 + bytes);
    }
  }
}
