// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/sparse/rows.hpp"

#include <algorithm>
#include <cstring>

#include "tutti/error.hpp"

#include "collectives/job/tree.hpp"
#include "collectives/kernels/reduce.hpp"

namespace tutti {

namespace {

template <class Integer>
void convert_ids(const Entry& entry, std::span<const Integer> ids, std::int64_t rows,
                 std::vector<std::int64_t>& to) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::int64_t>(ids[i]);
    if (id < 0 || id >= rows) {
      throw_invalid_argument(entry, "row id " + std::to_string(id) + " at position " +
                                        std::to_string(i) +
                                        (rows > 0 ? ": expected 0 to " + std::to_string(rows - 1)
                                                  : ": the table has no rows"));
    }
    to[i] = id;
  }
}

}  // namespace

RowFormat::RowFormat(const Entry& entry)
    : dtype(entry.dtype()), rows_total(entry.shape().dimensions().front()) {
  for (const std::int64_t length : entry.shape().dimensions().subspan(1)) {
    count *= static_cast<std::size_t>(length);
  }
}

Shape with_rows(const Shape& table, std::size_t rows) {
  std::vector<std::int64_t> dimensions(table.dimensions().begin(), table.dimensions().end());
  dimensions.front() = static_cast<std::int64_t>(rows);
  return Shape(dimensions);
}

std::vector<std::int64_t> read_ids(const Entry& entry, const ConstTensorView& ids) {
  std::vector<std::int64_t> result(ids.count());
  if (result.empty()) return result;  // an empty list may have any dtype
  const std::int64_t rows = entry.shape().dimensions().front();
  visit(ids.dtype(), [&]<class T>(T) {
    if constexpr (std::is_integral_v<T>) {
      convert_ids(entry, ids.values<T>(), rows, result);
    } else {
      throw_invalid_argument(entry, std::string("row ids have dtype ") + to_string(ids.dtype()) +
                                        ", expected an integer type");
    }
  });
  return result;
}

void find_rows(const Entry& entry, const RowSparseView& value, std::vector<FoundRow>& found) {
  const ConstTensorView& rows = value.rows();
  const std::size_t count = value.ids().count();
  if (count == 0 && rows.count() == 0) return;  // a value of no rows, whatever their shape
  const Shape expected = with_rows(entry.shape(), count);
  if (!(rows.shape() == expected)) {
    throw_invalid_argument(entry, "rows have shape " + to_string(rows.shape()) + ", expected " +
                                      to_string(expected) + " for " + std::to_string(count) +
                                      " row ids");
  }
  if (rows.dtype() != entry.dtype()) {
    throw_invalid_argument(entry, std::string("rows have dtype ") + to_string(rows.dtype()) +
                                      ", expected " + to_string(entry.dtype()));
  }
  const std::size_t bytes = RowFormat(entry).bytes();
  const std::byte* data = rows.bytes();
  for (const std::int64_t id : read_ids(entry, value.ids())) {
    found.push_back({id, 0, data});
    data += bytes;
  }
}

void merge_by_id(std::vector<FoundRow>& rows, std::vector<std::size_t> bounds) {
  std::vector<FoundRow> merged(bounds.size() > 2 ? rows.size() : 0);
  while (bounds.size() > 2) {
    std::vector<std::size_t> next = {0};
    for (std::size_t i = 0; i + 1 < bounds.size(); i += 2) {
      const auto at = [&](std::size_t bound) {
        return rows.begin() + static_cast<std::ptrdiff_t>(bound);
      };
      const std::size_t end = bounds[std::min(i + 2, bounds.size() - 1)];
      std::merge(at(bounds[i]), at(bounds[i + 1]), at(bounds[i + 1]), at(end),
                 merged.begin() + static_cast<std::ptrdiff_t>(bounds[i]),
                 [](const FoundRow& left, const FoundRow& right) { return left.id < right.id; });
      next.push_back(end);
    }
    rows.swap(merged);
    bounds = std::move(next);
  }
}

std::size_t count_ids(std::span<const FoundRow> rows) {
  std::size_t ids = 0;
  for_each_id(rows, [&](std::span<const FoundRow> /*of_one*/) { ++ids; });
  return ids;
}

RowSum::RowSum(const RowFormat& format, int ranks)
    : format_(format),
      ranks_(ranks),
      partial_(size_of(format.dtype) == 2 ? DType::float32 : format.dtype) {}

std::byte* RowSum::scratch(std::size_t level) {
  while (scratch_.size() <= level) scratch_.emplace_back(format_.count * size_of(partial_));
  return scratch_[level].data();
}

void RowSum::reduce(std::span<const FoundRow> rows, DType to_type, std::byte* to) {
  sources_.clear();
  for (const FoundRow& row : rows) sources_.push_back(row.data);
  collectives::reduce({ReduceOp::sum, format_.dtype, to_type}, sources_, std::span(&to, 1),
                      format_.count, collectives::WritePolicy::cached);
}

void RowSum::of_occurrences(std::span<const FoundRow> rows, std::byte* to) {
  if (rows.size() > 1) return reduce(rows, format_.dtype, to);
  std::memcpy(to, rows.front().data, format_.bytes());
}

/// Sums one row of each rank that has it. Two rows have one order only, and if all ranks have the
/// row, the tree is the one that the kernels sum along.
void RowSum::of_ranks(std::span<const FoundRow> rows, std::byte* to) {
  const bool as_they_are = rows.size() <= 2 || rows.size() == static_cast<std::size_t>(ranks_);
  if (as_they_are) return of_occurrences(rows, to);
  if (partial_ == format_.dtype) return subtree(rows, 0, ranks_, to);
  std::byte* wide = scratch(level_++);
  subtree(rows, 0, ranks_, wide);
  --level_;
  const std::byte* sum = wide;
  collectives::reduce({ReduceOp::sum, partial_, format_.dtype}, std::span(&sum, 1),
                      std::span(&to, 1), format_.count, collectives::WritePolicy::cached);
}

/// Sums the part of the tree over ranks first .. first + ranks - 1, in the type of partial sums.
void RowSum::subtree(std::span<const FoundRow> rows, int first, int ranks, std::byte* to) {
  const bool as_they_are = rows.size() <= 2 || rows.size() == static_cast<std::size_t>(ranks);
  if (as_they_are) return reduce(rows, partial_, to);
  const int left = collectives::split_point(ranks);
  const auto middle =
      std::ranges::find_if(rows, [&](const FoundRow& row) { return row.rank >= first + left; });
  const auto split = static_cast<std::size_t>(middle - rows.begin());
  if (split == rows.size()) return subtree(rows, first, left, to);
  if (split == 0) return subtree(rows, first + left, ranks - left, to);
  std::byte* right = scratch(level_++);
  subtree(rows.first(split), first, left, to);
  subtree(rows.subspan(split), first + left, ranks - left, right);
  --level_;
  const std::byte* both[] = {to, right};
  collectives::reduce({ReduceOp::sum, partial_, partial_}, both, std::span(&to, 1), format_.count,
                      collectives::WritePolicy::cached);
}

}  // namespace tutti
