// SPDX-License-Identifier: Apache-2.0
// Helpers of tests that compare row-sparse keys on fake GPUs with the same keys on the CPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tutti/optimizers.hpp"
#include "tutti/row_sparse.hpp"

#include "tests/unit/gpu_jobs.hpp"

namespace test {

using tutti::Device;
using tutti::DType;
using tutti::Tensor;

inline Tensor copied_to(Device device, const tutti::ConstTensorView& value) {
  Tensor tensor = Tensor::empty(value.shape(), value.dtype(), device);
  tensor.view().copy_from(value);
  return tensor;
}

/// Random rows, with negative zeros, and for floats with numbers that need all their bits.
inline Tensor random_rows(std::int64_t rows, std::int64_t length, DType dtype, unsigned seed) {
  auto numbers = random_values(static_cast<std::size_t>(rows * length), seed);
  const bool is_whole = dtype == DType::int8 || dtype == DType::uint8 || dtype == DType::int32 ||
                        dtype == DType::int64;
  for (float& number : numbers) number = is_whole ? std::abs(number * 50) : number;
  for (std::size_t i = 0; i < numbers.size(); i += 5) numbers[i] = -0.0f;
  Tensor tensor = Tensor::empty({rows, length}, dtype);
  tensor.view().copy_from(Tensor::from(std::span<const float>(numbers), {rows, length}));
  return tensor;
}

/// An updater that takes a quarter of each row from the table, on any device.
inline void subtract_rows(const tutti::Key& /*key*/, const tutti::RowSparseView& merged,
                          const tutti::TensorView& stored) {
  const auto ids = merged.ids().values<std::int64_t>();
  const auto length = stored.shape().dimensions()[1];
  const std::size_t bytes = static_cast<std::size_t>(length) * size_of(stored.dtype());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const tutti::ConstTensorView row(merged.rows().bytes() + i * bytes, {length}, stored.dtype(),
                                     merged.rows().device());
    tutti::TensorView(stored.bytes() + static_cast<std::size_t>(ids[i]) * bytes, {length},
                      stored.dtype(), stored.device()) -= 0.25 * row;
  }
}

inline void set_row_rule(tutti::KVStore& kv, const std::string& rule) {
  if (rule == "updater") {
    kv.set_updater([](const tutti::Key&, tutti::ConstTensorView, tutti::TensorView) {},
                   subtract_rows);
  } else if (!rule.empty()) {
    kv.set_optimizer(tutti::optimizer::create(rule));
  }
}

/// A store with keys 0 and 1: tables of rows of this length, on the devices `homes`.
class RowRig {
 public:
  static constexpr std::int64_t kRows = 40;
  static constexpr unsigned kSteps = 6;

  RowRig(tutti::KVStore store, std::vector<Device> homes, DType dtype, std::int64_t length,
         const std::string& rule)
      : kv(std::move(store)), homes_(std::move(homes)), dtype_(dtype), length_(length) {
    set_row_rule(kv, rule);
    for (int key = 0; key < 2; ++key) {
      kv.init_row_sparse(key, copied_to(home(key), random_rows(kRows, length_, dtype_, 3)));
    }
  }

  /// Pushes two values of key 0, of which the second has its ids on the GPU and its rows on the
  /// CPU, and one of key 1.
  void push(unsigned step) {
    std::vector<tutti::RowSparse> values;
    values.push_back(rows_of(step, 0, home(0), tutti::cpu()));
    values.push_back(rows_of(step, 1, tutti::cpu(), home(0)));
    values.push_back(rows_of(step, 2, home(1), tutti::cpu()));
    kv.push({0, 0, 1}, values);
    for (tutti::RowSparse& value : values) value.rows.fill(-7);  // they may be reused
  }

  [[nodiscard]] Tensor table(int key) const {
    Tensor whole = Tensor::zeros({kRows, length_}, dtype_);
    kv.pull(key, whole, tutti::PullOptions{.ignore_sparse = false});
    return whole;
  }

  tutti::KVStore kv;

 private:
  [[nodiscard]] Device home(int key) const {
    return homes_[static_cast<std::size_t>(key) % homes_.size()];
  }

  /// The ids of a value, which differ from step to step: no rows on any rank; one row; all rows;
  /// some several times; rank 0 alone; rows in a run.
  [[nodiscard]] std::vector<std::int64_t> ids_of(unsigned step, unsigned value) const {
    std::vector<std::int64_t> ids;
    const std::int64_t start = 3 * kv.rank() + value;
    switch (step % kSteps) {
      case 0:
        return {};
      case 1:
        return {start};
      case 2:
        for (std::int64_t id = kRows; id-- > 0;) ids.push_back(id);
        return ids;
      case 3:
        for (std::int64_t i = 0; i < 30; ++i) ids.push_back((start + i * i) % 11);
        return ids;
      case 4:
        return kv.rank() == 0 ? std::vector<std::int64_t>{39, 5} : ids;
      default:
        for (std::int64_t id = start; id < start + 9; ++id) ids.push_back(id == 6 ? 30 : id);
        return ids;
    }
  }

  [[nodiscard]] tutti::RowSparse rows_of(unsigned step, unsigned value, Device rows_home,
                                         Device ids_home) const {
    const auto ids = ids_of(step, value);
    if (ids.empty() && value == 1) return {};
    const unsigned seed = 100 * step + 10 * value + 1000 * static_cast<unsigned>(kv.rank());
    const auto count = static_cast<std::int64_t>(ids.size());
    return {copied_to(ids_home, Tensor::from(ids)),
            copied_to(rows_home, random_rows(count, length_, dtype_, seed))};
  }

  std::vector<Device> homes_;
  DType dtype_;
  std::int64_t length_;
};

inline bool have_same_bytes(const tutti::ConstTensorView& left,
                            const tutti::ConstTensorView& right) {
  return left.size_bytes() == right.size_bytes() &&
         (left.size_bytes() == 0 ||
          std::memcmp(left.bytes(), right.bytes(), left.size_bytes()) == 0);
}

inline void require_same_tables(const RowRig& there, const RowRig& here, unsigned step) {
  for (int key = 0; key < 2; ++key) {
    const Tensor found = there.table(key);
    const Tensor expected = here.table(key);
    if (have_same_bytes(found, expected)) continue;
    for (std::size_t i = 0; i < expected.count(); ++i) {
      require_equal(found.view().value(i), expected.view().value(i),
                    "key " + std::to_string(key) + ", element " + std::to_string(i) + ", step " +
                        std::to_string(step));
    }
    fail_here("key " + std::to_string(key) + ": the same numbers with other bits");
  }
}

}  // namespace test
