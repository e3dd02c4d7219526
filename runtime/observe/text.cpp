// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace tutti::observe {

namespace {

std::string three_digits(double value, const char* unit) {
  std::array<char, 48> text{};
  const int decimals = value < 10 ? 2 : value < 100 ? 1 : 0;
  std::snprintf(text.data(), text.size(), "%.*f %s", decimals, value, unit);
  return text.data();
}

}  // namespace

std::string bytes_to_string(std::uint64_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " B";
  auto value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"kB", "MB", "GB", "TB", "PB"}) {
    if (value < 999.5) break;
    value /= 1000;
    unit = next;
  }
  return three_digits(value, unit);
}

std::string seconds_to_string(double seconds) {
  if (seconds >= 0.9995) return three_digits(seconds, "s");
  if (seconds >= 0.9995e-3) return three_digits(seconds * 1e3, "ms");
  return three_digits(seconds * 1e6, "us");
}

std::string call_to_string(const std::string& call, const std::vector<Key>& keys) {
  constexpr std::size_t kShown = 4;
  if (keys.empty()) return call;
  if (keys.size() == 1) return call + " of key " + to_string(keys.front());
  std::string text = call + " of " + std::to_string(keys.size()) + " keys: ";
  for (std::size_t i = 0; i < std::min(kShown, keys.size()); ++i) {
    text += (i == 0 ? "" : ", ") + to_string(keys[i]);
  }
  return keys.size() > kShown ? text + ", ..." : text;
}

std::string last_to_string(const CallStatistics& call) {
  if (call.last.empty() || call.calls == 0) return {};
  const LastRank& most = call.last.front();
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "rank %d in %.0f %%", most.rank,
                100.0 * static_cast<double>(most.calls) / static_cast<double>(call.calls));
  return text.data();
}

std::string columns(std::initializer_list<std::string> words) {
  constexpr std::size_t kWidth = 12;
  std::string text;
  for (const std::string& word : words) {
    text += std::string(word.size() < kWidth ? kWidth - word.size() : 1, ' ') + word;
  }
  return text;
}

}  // namespace tutti::observe
