// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/nearest_name.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tutti {

namespace {

std::size_t edit_distance(const std::string& left, const std::string& right) {
  std::vector<std::size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= left.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= right.size(); ++j) {
      const std::size_t replace = diagonal + (left[i - 1] == right[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row.back();
}

/// Returns the initials of the words of a name: "lr" for learning_rate.
std::string initials_of(const std::string& words) {
  std::string initials;
  bool is_first = true;
  for (const char letter : words) {
    if (is_first) initials += letter;
    is_first = letter == '_';
  }
  return initials;
}

std::string in_lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return text;
}

}  // namespace

std::string nearest_name(const std::string& given, const std::vector<std::string>& candidates) {
  const std::string name = in_lower_case(given);
  if (name.size() > 1) {
    const auto by_initials = std::ranges::find_if(candidates, [&](const std::string& candidate) {
      return initials_of(in_lower_case(candidate)) == name;
    });
    if (by_initials != candidates.end()) return *by_initials;
    const auto longer = std::ranges::find_if(candidates, [&](const std::string& candidate) {
      return in_lower_case(candidate).starts_with(name);
    });
    if (longer != candidates.end()) return *longer;
  }
  std::string nearest;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(name, in_lower_case(candidate));
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace tutti
