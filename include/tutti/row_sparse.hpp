// SPDX-License-Identifier: Apache-2.0
// Row-sparse values: some rows of a table, the form in which row-sparse keys are pushed and pulled.
//
// A row-sparse key (KVStore::init_row_sparse) holds a table, for example of embeddings, of which a
// push changes a few rows. A push or pull moves and computes in proportion to these rows, never to
// the table. A table of zeros takes memory for the pages that were written only.
//
//   push   Sums the union of the rows over values and ranks. A row that occurs several times in
//          what a rank pushes is summed first, in the canonical order of its occurrences. Then the
//          ranks that have the row are summed along the canonical tree over all ranks: a rank that
//          has not adds nothing. The bits are those of a dense push whose other rows are zero (but
//          for the sign of zero), and the same on every layout of the ranks over nodes. 16-bit
//          floats are accumulated in float32, and rounded once by a rank and once by all.
//   update Without an updater the pushed rows are replaced by the sums, and all others stay. sgd,
//          adam and adagrad update the pushed rows alone, with weight decay and momentum, and leave
//          the states of other rows as they are (a lazy update); t counts the key's pushes. Other
//          optimizers, and an Updater, throw for row-sparse keys: see RowSparseUpdater.
//   exact  Gradient compression leaves row-sparse keys alone.
//   GPUs   A table from a value on a GPU stays there ("local" stores apart), with the optimizer's
//          states; all of it takes memory from the start. The bits are those of a table on the CPU,
//          because hosts exchange and sum the rows: what a rank pushes from a GPU is copied to the
//          host, and the sums are copied back. Ids and rows may be on the CPU or on any GPU of the
//          process, whatever the table is on. A list may mix keys on the CPU and on GPUs.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <ranges>
#include <utility>
#include <vector>

#include "tutti/arguments.hpp"
#include "tutti/tensor.hpp"

namespace tutti {

/// Rows in memory of their own, which a pull fills.
/// Shape  ids is (n), int64; rows is (n, ...), where ... are the table's dimensions but the first.
struct RowSparse {
  Tensor ids = Tensor::empty({0}, DType::int64);
  Tensor rows = Tensor::empty({0});

  /// `RowSparse::from({7, 9}, Tensor::ones({2, 16}))`. Ids may also be a vector, array or span of
  /// any integer type; a type that DType does not name becomes int64.
  static RowSparse from(std::initializer_list<std::int64_t> ids, Tensor rows) {
    return {Tensor::from(ids), std::move(rows)};
  }
  template <std::ranges::contiguous_range Ids>
  static RowSparse from(const Ids& ids, Tensor rows) {
    using Id = std::ranges::range_value_t<Ids>;
    if constexpr (Element<Id> || !std::integral<Id>) {
      return {Tensor::from(ids), std::move(rows)};
    } else {
      std::vector<std::int64_t> wide;
      for (const Id id : ids) wide.push_back(static_cast<std::int64_t>(id));
      return {Tensor::from(wide), std::move(rows)};
    }
  }
};

/// Borrowed rows, as a push takes them. Row i of `rows` is, or is added to, row ids[i] of the
/// table. Ids may be of any integer type and shape, in any order, and occur several times. A value
/// without ids and rows, such as RowSparse{}, stands for no rows of any table.
class RowSparseView {
 public:
  RowSparseView(const RowSparse& value) : ids_(value.ids), rows_(value.rows) {}  // NOLINT

  [[nodiscard]] const ConstTensorView& ids() const noexcept { return ids_; }
  [[nodiscard]] const ConstTensorView& rows() const noexcept { return rows_; }

  friend RowSparseView row_sparse(ConstTensorView ids, ConstTensorView rows);

 private:
  struct Parts {  // not two arguments: a list of two tensors would mean rows, too
    ConstTensorView ids;
    ConstTensorView rows;
  };
  explicit RowSparseView(Parts parts) : ids_(std::move(parts.ids)), rows_(std::move(parts.rows)) {}

  ConstTensorView ids_;
  ConstTensorView rows_;
};

/// `kv.push(3, row_sparse(ids, rows))`. Ids or rows that do not fit are an error of the push, on
/// every rank.
inline RowSparseView row_sparse(ConstTensorView ids, ConstTensorView rows) {
  return RowSparseView(RowSparseView::Parts{std::move(ids), std::move(rows)});
}

/// The target of a pull of rows. Ids or rows of another size are allocated again, on the device
/// where they were: a RowSparse with `rows` of no elements on a GPU gets its rows there.
class RowSparseOutput {
 public:
  RowSparseOutput(RowSparse& target) : target_(&target) {}  // NOLINT: implicit on purpose
  [[nodiscard]] RowSparse& target() const noexcept { return *target_; }

 private:
  RowSparse* target_;
};

using RowSparseValues = TensorList<RowSparseView>;
using RowSparseOutputs = TensorList<RowSparseOutput>;

/// An updater's function for row-sparse keys: `merged` has each pushed row once, ascending, and
/// `stored` is the whole table, of which it changes rows in place. For a table on a GPU, both sets
/// of rows are in that GPU's memory, and the ids are in host memory. Otherwise as Updater.
using RowSparseUpdater =
    std::function<void(const Key& key, const RowSparseView& merged, TensorView stored)>;

}  // namespace tutti
