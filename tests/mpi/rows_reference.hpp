// SPDX-License-Identifier: Apache-2.0
// Rows that every rank can compute for every rank, and their sum as it should come out: row by row,
// element by element, along the canonical tree.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "tutti/tutti.hpp"

#include "tests/support/oracle.hpp"

namespace test {

inline constexpr std::int64_t kTableRows = 40;
inline constexpr std::size_t kRowCount = 6;
inline const tutti::Shape kTable = {kTableRows, 2, 3};

/// What a rank pushes: from 0 to 12 rows, some of them several times, in no order.
template <class T>
struct Rows {
  std::vector<std::int64_t> ids;
  std::vector<T> values;

  Rows(int owner, std::uint64_t seed) {
    const std::uint64_t start = mix(seed * 7919U + static_cast<std::uint64_t>(owner));
    ids.resize(start % 13);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::int64_t>(mix(start + i) % kTableRows / 2 * 2);
    }
    values = random_values<T>(ids.size() * kRowCount, owner, seed);
  }
  [[nodiscard]] tutti::RowSparse tensors() const {
    tutti::RowSparse rows{
        tutti::Tensor::from<std::int64_t>(ids),
        tutti::Tensor::empty({static_cast<std::int64_t>(ids.size()), 2, 3}, tutti::dtype_of<T>)};
    std::ranges::copy(values, rows.rows.template values<T>().begin());
    return rows;
  }
};

/// The tree over ranks first .. first + count - 1, in which some have nothing.
template <class C>
std::optional<C> sparse_tree(const std::function<std::optional<C>(int)>& leaf, int first,
                             int count) {
  if (count == 1) return leaf(first);
  int left = 1;
  while (2 * left < count) left *= 2;
  const auto lower = sparse_tree<C>(leaf, first, left);
  const auto upper = sparse_tree<C>(leaf, first + left, count - left);
  if (!lower || !upper) return lower ? lower : upper;
  return combine(tutti::ReduceOp::sum, *lower, *upper);
}

/// By row: what all ranks' rows give together.
template <class T>
std::map<std::int64_t, std::vector<T>> merged_rows(int ranks, std::uint64_t seed) {
  using C = std::conditional_t<is_half<T>, float, T>;
  std::vector<std::map<std::int64_t, std::vector<T>>> sums(static_cast<std::size_t>(ranks));
  std::map<std::int64_t, std::vector<T>> merged;
  for (int owner = 0; owner < ranks; ++owner) {
    const Rows<T> rows(owner, seed);
    std::map<std::int64_t, std::vector<std::vector<T>>> found;
    for (std::size_t i = 0; i < rows.ids.size(); ++i) {
      const auto begin = rows.values.begin() + static_cast<std::ptrdiff_t>(i * kRowCount);
      found[rows.ids[i]].emplace_back(begin, begin + kRowCount);
    }
    for (const auto& [id, several] : found) {
      sums[static_cast<std::size_t>(owner)][id] = reduced(tutti::ReduceOp::sum, several);
      merged[id].resize(kRowCount);
    }
  }
  for (auto& [row_id, row] : merged) {
    const auto id = row_id;  // clang before version 16 captures no structured binding
    for (std::size_t i = 0; i < kRowCount; ++i) {
      const std::function<std::optional<C>(int)> leaf = [&](int owner) -> std::optional<C> {
        const auto& own = sums[static_cast<std::size_t>(owner)];
        const auto place = own.find(id);
        if (place == own.end()) return std::nullopt;
        return static_cast<C>(place->second[i]);
      };
      row[i] = T(*sparse_tree<C>(leaf, 0, ranks));
    }
  }
  return merged;
}

}  // namespace test
