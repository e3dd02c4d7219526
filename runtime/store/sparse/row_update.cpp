// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/sparse/row_update.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "tutti/error.hpp"

#include "runtime/optimizers/catalogue.hpp"
#include "runtime/store/core/user_updater.hpp"

namespace tutti {

namespace {

constexpr std::size_t kTileElements =
    2048;  // elements of a tile: weight and states stay in the cache

/// Rows from all over the table, gathered side by side, so that the optimizer's loop sees many
/// elements.
template <class Real>
class Tile {
 public:
  Tile(const Optimizer& optimizer, const UpdateStep& step, Entry& entry)
      : optimizer_(optimizer),
        step_(step),
        count_(RowFormat(entry).count),
        rows_(count_ == 0 ? 1 : std::max<std::size_t>(1, kTileElements / count_)),
        gradient_(rows_ * count_) {
    columns_.push_back({entry.replica.values<Real>().data(), std::vector<Real>(rows_ * count_)});
    for (Tensor& state : entry.states) {
      columns_.push_back({state.values<Real>().data(), std::vector<Real>(rows_ * count_)});
    }
  }

  /// Adds a row; returns the memory for its sum.
  Real* add(std::int64_t id) {
    if (ids_.size() == rows_) flush();
    ids_.push_back(static_cast<std::size_t>(id));
    return gradient_.data() + (ids_.size() - 1) * count_;
  }

  /// Updates the rows of the tile, which is then empty.
  void flush() {
    for (Column& column : columns_) {
      for (std::size_t i = 0; i < ids_.size(); ++i) {
        std::copy_n(column.table + ids_[i] * count_, count_, column.rows.data() + i * count_);
      }
    }
    std::array<Real*, Optimizer::kMostStates> states{};
    for (std::size_t i = 1; i < columns_.size(); ++i) states[i - 1] = columns_[i].rows.data();
    const std::size_t elements = ids_.size() * count_;
    optimizer_.update(step_, ElementRange<Real>{.gradient = {gradient_.data(), elements},
                                                .weight = {columns_[0].rows.data(), elements},
                                                .states = {states.data(), columns_.size() - 1}});
    for (const Column& column : columns_) {
      for (std::size_t i = 0; i < ids_.size(); ++i) {
        std::copy_n(column.rows.data() + i * count_, count_, column.table + ids_[i] * count_);
      }
    }
    ids_.clear();
  }

 private:
  struct Column {  ///< the weight, or a state
    Real* table;
    std::vector<Real> rows;
  };

  const Optimizer& optimizer_;
  const UpdateStep& step_;
  std::size_t count_;
  std::size_t rows_;
  std::vector<std::size_t> ids_;
  std::vector<Real> gradient_;
  std::vector<Column> columns_;
};

}  // namespace

void require_rows_rule(const UpdateRule& rule, const Entry& entry) {
  const auto throw_invalid_argument = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument,
                to_string(entry.key, entry.shape(), entry.dtype()) + ", row-sparse: " + why);
  };
  if (rule.updater() != nullptr && !rule.row_updater) {
    throw_invalid_argument(
        "the updater takes dense values; give set_updater a second function for rows");
  }
  const Optimizer* optimizer = rule.optimizer();
  if (optimizer == nullptr) return;
  if (rule.scaler != nullptr) {
    throw_invalid_argument(
        scaler_refusal("for dense keys; keep row-sparse keys in a store of their own, whose "
                       "optimizer has neither"));
  }
  if (!optimizer->updates_rows()) {
    throw_invalid_argument(optimizer->name() +
                           " does not update single rows; these optimizers do: " +
                           optimizer::names_that_update_rows());
  }
  if (entry.dtype() != DType::float32 && entry.dtype() != DType::float64) {
    throw_invalid_argument("optimizers update rows of float32 and float64");
  }
  if (entry.is_on_gpu()) require_kernels(*optimizer, entry);
}

void RowUpdate::run(std::span<const FoundRow> found) const {
  const Optimizer* optimizer = rule.optimizer();
  if (rule.updater() != nullptr) return call_updater(found);
  if (optimizer == nullptr) return assign(found);
  if (entry.dtype() == DType::float32) return optimize<float>(*optimizer, found);
  optimize<double>(*optimizer, found);
}

void RowUpdate::assign(std::span<const FoundRow> found) const {
  const RowFormat format(entry);
  RowSum sum(format, group.topology().size);
  for_each_id(found, [&](std::span<const FoundRow> rows) {
    sum.of_ranks(
        rows, entry.replica.bytes() + static_cast<std::size_t>(rows.front().id) * format.bytes());
  });
}

template <class Real>
void RowUpdate::optimize(const Optimizer& optimizer, std::span<const FoundRow> found) const {
  RowSum sum(RowFormat(entry), group.topology().size);
  const UpdateStep step = optimizer.step(entry.key, entry.updates + 1, most_updates);
  Tile<Real> tile(optimizer, step, entry);
  const auto update = [&] {
    for_each_id(found, [&](std::span<const FoundRow> rows) {
      sum.of_ranks(rows, reinterpret_cast<std::byte*>(tile.add(rows.front().id)));
    });
    tile.flush();
  };
  run_user_code(
      group, [&] { return "optimizer " + optimizer.name(); }, update);
}

void RowUpdate::call_updater(std::span<const FoundRow> found) const {
  const RowFormat format(entry);
  RowSum sum(format, group.topology().size);
  const std::size_t count = count_ids(found);
  RowSparse merged{Tensor::empty({static_cast<std::int64_t>(count)}, DType::int64),
                   Tensor::empty(with_rows(entry.shape(), count), entry.dtype())};
  std::size_t place = 0;
  for_each_id(found, [&](std::span<const FoundRow> rows) {
    merged.ids.values<std::int64_t>()[place] = rows.front().id;
    sum.of_ranks(rows, merged.rows.bytes() + place++ * format.bytes());
  });
  run_updater(group, entry.key, [&] { rule.row_updater(entry.key, merged, entry.replica); });
}

}  // namespace tutti
