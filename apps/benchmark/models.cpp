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
    throw_bad_option("--model: " + path + ": " + std::strerror(errno) +
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
      throw_bad_option("--model: " + path + ":" + std::to_string(number) +
                       ": expected a shape as in 64x3x7x7, found '" + line + "'");
    }
    shapes.emplace_back(std::span<const std::int64_t>(extents));
  }
  if (shapes.empty()) throw_bad_option("--model: " + path + ": expected one shape per line");
  return shapes;
}

}  // namespace

std::vector<Shape> load_model(const std::string& name_or_file) {
  if (name_or_file == "resnet50") return resnet50();
  if (name_or_file == "bert-base") return bert_base();
  return read_shapes(name_or_file);
}

}  // namespace apps::benchmark
