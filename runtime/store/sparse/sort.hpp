// SPDX-License-Identifier: Apache-2.0
// Sorting by row id, in time proportional to the number of rows, since ids have few digits.
// Comparing ids took most of the time of a push.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace tutti {

/// Sorts by the id that `id_of` gives, which is not negative; values with the same id keep their
/// order.
template <class Value, class IdOf>
void sort_by_digits(std::vector<Value>& values, IdOf id_of) {
  constexpr int kBits = 11;
  constexpr std::size_t kDigits = std::size_t{1} << kBits;
  // Up to so many values comparisons cost less than counters of digits.
  constexpr std::size_t kFew = 128;
  if (std::ranges::is_sorted(values, {}, id_of)) return;
  if (values.size() < kFew) {
    std::ranges::stable_sort(values, {}, id_of);
    return;
  }
  std::uint64_t used = 0;
  for (const Value& value : values) used |= static_cast<std::uint64_t>(std::invoke(id_of, value));
  std::vector<Value> sorted = values;
  for (int shift = 0; shift < 64 && (used >> shift) != 0; shift += kBits) {
    const auto digit_of = [&](const Value& value) {
      return (static_cast<std::uint64_t>(std::invoke(id_of, value)) >> shift) % kDigits;
    };
    std::array<std::size_t, kDigits> places{};
    for (const Value& value : values) ++places[digit_of(value)];
    std::size_t before = 0;
    for (std::size_t& place : places) before += std::exchange(place, before);
    for (const Value& value : values) sorted[places[digit_of(value)]++] = value;
    values.swap(sorted);
  }
}

}  // namespace tutti
