// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/cases.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <string_view>

#include "apps/benchmark/models.hpp"
#include "support/command_line.hpp"

namespace apps::benchmark {

int partner_of(int rank, int ranks) {
  const int partner = rank % 2 == 0 ? rank + 1 : rank - 1;
  return partner < ranks ? partner : -1;
}

namespace {

tutti::Shape vector_of(std::size_t count) { return {static_cast<std::int64_t>(count)}; }

// --- bus factors: the data that the busiest link carries, in units of S --------------------------

double reduced_and_spread(int ranks) { return 2.0 * (ranks - 1) / ranks; }
double all_but_own_block(int ranks) { return static_cast<double>(ranks - 1) / ranks; }
double once(int) { return 1.0; }
double nothing(int) { return 0.0; }

// --- memory factors: the data that a rank reads and writes, in units of S ------------------------

double vector_in_vector_out(int) { return 2.0; }
double vector_and_block(int ranks) { return 1.0 + 1.0 / ranks; }
double what_root_has(int ranks) { return 2.0 / ranks; }
/// A pushpull also writes the store's own copy.
double vector_in_replica_and_vector_out(int) { return 3.0; }

// --- layouts -------------------------------------------------------------------------------------

/// A layout in which input and output are the whole vector.
Layout whole_vector(std::size_t bytes, std::size_t element_bytes, int) {
  const std::size_t count = bytes / element_bytes;
  if (count == 0) return {};
  return {{{vector_of(count), vector_of(count)}}, count * element_bytes, count};
}

std::size_t block_count(std::size_t bytes, std::size_t element_bytes, int ranks) {
  return bytes / element_bytes / static_cast<std::size_t>(ranks);
}

/// A layout in which the input is the whole vector, and the output a block of it.
Layout vector_to_block(std::size_t bytes, std::size_t element_bytes, int ranks) {
  const std::size_t block = block_count(bytes, element_bytes, ranks);
  if (block == 0) return {};
  const std::size_t whole = block * static_cast<std::size_t>(ranks);
  return {{{vector_of(whole), vector_of(block)}}, whole * element_bytes, block};
}

Layout block_to_vector(std::size_t bytes, std::size_t element_bytes, int ranks) {
  Layout layout = vector_to_block(bytes, element_bytes, ranks);
  for (Layout::Pair& pair : layout.pairs) std::swap(pair.input, pair.output);
  return layout;
}

/// A layout in which input and output have as many blocks as there are ranks.
Layout vector_of_blocks(std::size_t bytes, std::size_t element_bytes, int ranks) {
  Layout layout = vector_to_block(bytes, element_bytes, ranks);
  for (Layout::Pair& pair : layout.pairs) pair.output = pair.input;
  return layout;
}

Layout no_data(std::size_t, std::size_t, int) { return {}; }

// --- results -------------------------------------------------------------------------------------

std::vector<Stretch> sum_everywhere(std::size_t count, int, int, int) {
  return {{count, kReduced, 0}};
}

std::vector<Stretch> own_block_of_sum(std::size_t count, int rank, int, int) {
  return {{count, kReduced, count * static_cast<std::size_t>(rank)}};
}

std::vector<Stretch> every_input(std::size_t count, int, int ranks, int) {
  std::vector<Stretch> blocks;
  blocks.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    blocks.push_back({count / static_cast<std::size_t>(ranks), rank, 0});
  }
  return blocks;
}

std::vector<Stretch> every_input_at_root(std::size_t count, int rank, int ranks, int root) {
  if (rank != root) return {};
  return every_input(count, rank, ranks, root);
}

std::vector<Stretch> own_block_of_root(std::size_t count, int rank, int, int root) {
  return {{count, root, count * static_cast<std::size_t>(rank)}};
}

/// From every rank's input, the block that is meant for this rank.
std::vector<Stretch> own_block_of_each(std::size_t count, int rank, int ranks, int root) {
  std::vector<Stretch> blocks = every_input(count, rank, ranks, root);
  for (Stretch& block : blocks) block.first = block.count * static_cast<std::size_t>(rank);
  return blocks;
}

/// The input of this rank's partner in "sendrecv". An odd rank without a partner receives nothing.
std::vector<Stretch> input_of_partner(std::size_t count, int rank, int ranks, int) {
  const int partner = partner_of(rank, ranks);
  if (partner < 0) return {};
  return {{count, partner, 0}};
}

std::vector<Stretch> input_of_root(std::size_t count, int, int, int root) {
  return {{count, root, 0}};
}

std::vector<Stretch> sum_at_root(std::size_t count, int rank, int, int root) {
  if (rank != root) return {};
  return {{count, kReduced, 0}};
}

std::vector<Stretch> no_result(std::size_t, int, int, int) { return {}; }

constexpr std::array kCases{
    Case{"allreduce", true, false, true, reduced_and_spread, vector_in_vector_out, whole_vector,
         sum_everywhere},
    Case{"reduce_scatter", true, false, true, all_but_own_block, vector_and_block, vector_to_block,
         own_block_of_sum},
    Case{"allgather", false, false, true, all_but_own_block, vector_and_block, block_to_vector,
         every_input},
    Case{"broadcast", false, true, true, once, once, whole_vector, input_of_root},
    Case{"reduce", true, false, true, once, vector_and_block, whole_vector, sum_at_root},
    Case{"gather", false, false, true, all_but_own_block, what_root_has, block_to_vector,
         every_input_at_root},
    Case{"scatter", false, false, true, all_but_own_block, what_root_has, vector_to_block,
         own_block_of_root},
    Case{"alltoall", false, false, true, all_but_own_block, vector_in_vector_out, vector_of_blocks,
         own_block_of_each},
    Case{"alltoallv", false, false, true, all_but_own_block, vector_in_vector_out, vector_of_blocks,
         own_block_of_each},
    Case{"allgatherv", false, false, true, all_but_own_block, vector_and_block, block_to_vector,
         every_input},
    Case{"sendrecv", false, false, true, once, vector_in_vector_out, whole_vector,
         input_of_partner},
    Case{"user_allreduce", true, false, true, reduced_and_spread, vector_in_vector_out,
         whole_vector, sum_everywhere},
    Case{"barrier", false, false, false, nothing, nothing, no_data, no_result},
    Case{"pushpull", true, false, true, reduced_and_spread, vector_in_replica_and_vector_out,
         whole_vector, sum_everywhere},
};

}  // namespace

double busbw_limit(const Case& chosen, int ranks, double memory_gbs) {
  const double moved = chosen.memory_factor(ranks);
  return moved > 0.0 ? memory_gbs / moved * chosen.bus_factor(ranks) : 0.0;
}

bool has_root(const Case& chosen) {
  const std::string_view name = chosen.name;
  return name == "broadcast" || name == "reduce" || name == "gather" || name == "scatter";
}

const Case& find_case(std::string_view name) {
  std::string names;
  for (const Case& candidate : kCases) {
    if (name == candidate.name) return candidate;
    names += (names.empty() ? "" : ", ") + std::string(candidate.name);
  }
  throw_usage_error("--collective: expected one of " + names + "; found '" + std::string(name) +
                    "'");
}

Layout layout_of(const std::vector<tutti::Shape>& shapes, std::size_t element_bytes) {
  Layout layout;
  for (const tutti::Shape& shape : shapes) {
    layout.pairs.push_back({shape, shape});
    layout.count += shape.count();
  }
  layout.bytes = layout.count * element_bytes;
  return layout;
}

namespace {

using tutti::Shape;

/// The numbers of a line, separated by x, commas or spaces. Empty if the line is something else.
std::vector<std::int64_t> parse_extents(std::string_view line) {
  constexpr std::string_view kBetween = "x, \t\r()[]";
  std::vector<std::int64_t> extents;
  while (true) {
    const std::size_t start = line.find_first_not_of(kBetween);
    if (start == std::string_view::npos) return extents;
    line.remove_prefix(start);
    std::int64_t extent = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), extent);
    const auto length = static_cast<std::size_t>(end - line.data());
    const bool ends = length == line.size() || kBetween.find(*end) != std::string_view::npos;
    if (error != std::errc{} || extent < 1 || !ends) return {};
    extents.push_back(extent);
    line.remove_prefix(length);
  }
}

std::vector<Shape> read_shapes(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw_usage_error("--model: " + path + ": " + std::strerror(errno) +
                      "; expected resnet50, bert-base or a file");
  }
  std::vector<Shape> shapes;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line.resize(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto extents = parse_extents(line);
    if (extents.empty()) {
      throw_usage_error("--model: " + path + ":" + std::to_string(number) +
                        ": expected a shape as in 64x3x7x7, found '" + line + "'");
    }
    shapes.emplace_back(std::span<const std::int64_t>(extents));
  }
  if (shapes.empty()) throw_usage_error("--model: " + path + ": expected one shape per line");
  return shapes;
}

}  // namespace

std::vector<Shape> load_model(const std::string& name_or_file) {
  if (name_or_file == "resnet50") return resnet50();
  if (name_or_file == "bert-base") return bert_base();
  return read_shapes(name_or_file);
}

}  // namespace apps::benchmark
