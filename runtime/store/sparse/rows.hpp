// SPDX-License-Identifier: Apache-2.0
// Rows from several places of a table: reading, sorting, merging and summing them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/row_sparse.hpp"

#include "runtime/store/core/key_table.hpp"

namespace tutti {

/// One row, as one rank has it.
struct FoundRow {
  std::int64_t id;
  int rank;
  const std::byte* data;
};

/// Size and type of a key's rows.
struct RowFormat {
  explicit RowFormat(const Entry& entry);
  [[nodiscard]] std::size_t bytes() const { return count * size_of(dtype); }

  DType dtype;
  std::size_t count = 1;    ///< elements of a row
  std::int64_t rows_total;  ///< rows in the whole table
};

/// The shape of `table` with another number of rows.
Shape with_rows(const Shape& table, std::size_t rows);

/// Reads ids as int64, in their order.
/// Errors  invalid_argument: ids that are not integers, or outside of the entry's table.
std::vector<std::int64_t> read_ids(const Entry& entry, const ConstTensorView& ids);

/// Appends a value's rows: none for a value without ids and elements. Errors  invalid_argument:
/// those of read_ids; rows of another dtype or shape.
void find_rows(const Entry& entry, const RowSparseView& value, std::vector<FoundRow>& found);

/// Merges lists that are each sorted by id: list i is rows bounds[i] .. bounds[i + 1] - 1. Rows of
/// one id keep their order.
void merge_by_id(std::vector<FoundRow>& rows, std::vector<std::size_t> bounds);

/// Calls visit(the rows of one id) for each id, ascending. The rows are sorted.
template <class Visit>
void for_each_id(std::span<const FoundRow> rows, Visit visit) {
  for (std::size_t first = 0, end = 0; first < rows.size(); first = end) {
    while (end < rows.size() && rows[end].id == rows[first].id) ++end;
    visit(rows.subspan(first, end - first));
  }
}
[[nodiscard]] std::size_t count_ids(std::span<const FoundRow> rows);

/// Sums the rows of one id.
class RowSum {
 public:
  RowSum(const RowFormat& format, int ranks);

  /// Sums one rank's occurrences of the row, in the canonical tree over them.
  void of_occurrences(std::span<const FoundRow> rows, std::byte* to);
  /// Sums at most one row from each rank, in the canonical tree over all ranks; the place of a rank
  /// that does not have the row stays empty. 16-bit floats are rounded once.
  void of_ranks(std::span<const FoundRow> rows, std::byte* to);

 private:
  void subtree(std::span<const FoundRow> rows, int first, int ranks, std::byte* to);
  void reduce(std::span<const FoundRow> rows, DType to_type, std::byte* to);
  std::byte* scratch(std::size_t level);

  RowFormat format_;
  int ranks_;
  DType partial_;  ///< the type of partial sums
  std::size_t level_ = 0;
  std::vector<std::vector<std::byte>> scratch_;
  std::vector<const std::byte*> sources_;
};

}  // namespace tutti
