// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/models.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <string_view>

#include "support/command_line.hpp"

namespace apps::benchmark {
namespace {

using tutti::Shape;

void append_norm(std::vector<Shape>& shapes, std::int64_t channels) {
  shapes.push_back({channels});  // weight
  shapes.push_back({channels});  // bias
}

void append_convolution(std::vector<Shape>& shapes, std::int64_t from, std::int64_t to,
                        std::int64_t kernel) {
  shapes.push_back({to, from, kernel, kernel});
  append_norm(shapes, to);
}

void append_linear(std::vector<Shape>& shapes, std::int64_t from, std::int64_t to) {
  shapes.push_back({to, from});
  shapes.push_back({to});
}

/// The numbers of a line, separated by x, commas or spaces. Empty if it is none.
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
    refuse_option("--model: " + path + ": " + std::strerror(errno) +
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
      refuse_option("--model: " + path + ":" + std::to_string(number) +
                    ": expected a shape as in 64x3x7x7, found '" + line + "'");
    }
    shapes.emplace_back(std::span<const std::int64_t>(extents));
  }
  if (shapes.empty()) refuse_option("--model: " + path + ": expected one shape per line");
  return shapes;
}

}  // namespace

std::vector<Shape> resnet50() {
  struct Stage {
    int blocks;
    std::int64_t width;
  };
  constexpr std::int64_t kExpansion = 4;
  std::vector<Shape> shapes;
  append_convolution(shapes, 3, 64, 7);
  std::int64_t channels = 64;
  for (const Stage& stage : {Stage{3, 64}, Stage{4, 128}, Stage{6, 256}, Stage{3, 512}}) {
    for (int block = 0; block < stage.blocks; ++block) {
      append_convolution(shapes, channels, stage.width, 1);
      append_convolution(shapes, stage.width, stage.width, 3);
      append_convolution(shapes, stage.width, stage.width * kExpansion, 1);
      if (block == 0) append_convolution(shapes, channels, stage.width * kExpansion, 1);
      channels = stage.width * kExpansion;
    }
  }
  append_linear(shapes, channels, 1000);
  return shapes;
}

std::vector<Shape> bert_base() {
  constexpr std::int64_t kWidth = 768;
  constexpr std::int64_t kInner = 4 * kWidth;
  constexpr int kLayers = 12;
  std::vector<Shape> shapes{{30522, kWidth}, {512, kWidth}, {2, kWidth}};  // embeddings
  append_norm(shapes, kWidth);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int matrix = 0; matrix < 4; ++matrix) {  // query, key, value, output
      append_linear(shapes, kWidth, kWidth);
    }
    append_norm(shapes, kWidth);
    append_linear(shapes, kWidth, kInner);
    append_linear(shapes, kInner, kWidth);
    append_norm(shapes, kWidth);
  }
  append_linear(shapes, kWidth, kWidth);  // pooler
  return shapes;
}

std::vector<Shape> load_model(const std::string& name_or_file) {
  if (name_or_file == "resnet50") return resnet50();
  if (name_or_file == "bert-base") return bert_base();
  return read_shapes(name_or_file);
}

}  // namespace apps::benchmark
