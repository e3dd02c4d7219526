// SPDX-License-Identifier: Apache-2.0
// The sum of squares on a GPU has the bits of the sum of squares on a CPU.
#include "runtime/optimizers/squares.hpp"

#include <cmath>
#include <doctest/doctest.h>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "tests/gpu/rig.hpp"

using tutti::DType;
using tutti::Tensor;
using tutti::gpus::TensorRow;
namespace optimizer = tutti::optimizer;

namespace {

double squares_on_cpu(const Tensor& sum) {
  std::vector<double> tiles(optimizer::squares_tiles(sum.dtype(), sum.count()));
  optimizer::add_squares(sum.dtype(), sum.bytes(), sum.count(), tiles);
  return optimizer::total_squares(tiles);
}

struct OnDevice {
  std::vector<std::unique_ptr<test::DeviceTensor>> inputs;
  bool in_tree;
  Tensor sum;
};

OnDevice some_row(test::Rig& rig, DType dtype, std::int64_t count, int num_inputs,
                  std::uint64_t seed, std::size_t offset) {
  std::vector<Tensor> values;
  std::vector<std::unique_ptr<test::DeviceTensor>> inputs;
  for (int i = 0; i < num_inputs; ++i) {
    values.push_back(test::random_tensor({count}, dtype, i, seed));
    inputs.push_back(std::make_unique<test::DeviceTensor>(rig, values.back(), offset));
  }
  const bool in_tree = num_inputs % 2 == 0;
  return {std::move(inputs), in_tree,
          in_tree ? test::sum_in_tree(values) : test::sum_in_order(values)};
}

TensorRow row_of(const OnDevice& made) {
  TensorRow row{.in_tree = made.in_tree,
                .num_inputs = static_cast<int>(made.inputs.size()),
                .count = made.sum.count(),
                .dtype = made.sum.dtype()};
  for (std::size_t i = 0; i < made.inputs.size(); ++i) row.inputs[i] = made.inputs[i]->data();
  return row;
}

bool all_equal(test::Rig& rig, const std::vector<OnDevice>& all) {
  std::vector<TensorRow> rows;
  for (const OnDevice& one : all) rows.push_back(row_of(one));
  const auto table = rig.kernels().make_table();
  const test::DeviceTensor results(
      rig, Tensor::full({static_cast<std::int64_t>(rows.size())}, -1, DType::float64));
  rig.kernels().squares(nullptr, *table, rows, nullptr);  // prepares, and writes nothing
  for (int round = 0; round < 2; ++round) {
    rig.kernels().squares(nullptr, *table, rows, reinterpret_cast<double*>(results.data()));
    const Tensor found = results.read();
    for (std::size_t i = 0; i < all.size(); ++i) {
      CAPTURE(i);
      CAPTURE(all[i].sum.count());
      const bool is_equal = found.values<double>()[i] == squares_on_cpu(all[i].sum);
      CHECK(is_equal);
      if (!is_equal) return false;
    }
  }
  return results.is_guarded();
}

}  // namespace

TEST_CASE("squares of sums of all types of floats have the bits of a CPU, whatever the alignment") {
  for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
    const auto rig = test::make_rig();
    std::vector<OnDevice> rows;
    std::uint64_t seed = 1;
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64, DType::float16}) {
      for (const std::int64_t count : {0, 1, 31, 1024, 1025, 5003}) {
        const int num_inputs = static_cast<int>(seed % 8) + 1;
        rows.push_back(some_row(*rig, dtype, count, num_inputs, seed++, offset));
      }
    }
    CHECK(all_equal(*rig, rows));
  }
}

TEST_CASE("squares of a tensor of more tiles than a block has threads") {
  const auto rig = test::make_rig();
  std::vector<OnDevice> rows;
  rows.push_back(some_row(*rig, DType::float32, 700001, 1, 5, 0));
  CHECK(all_equal(*rig, rows));
}

TEST_CASE("squares are not finite where an element is not") {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()}) {
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64, DType::float16}) {
      const auto rig = test::make_rig();
      Tensor value = test::random_tensor({3001}, dtype, 1);
      tutti::TensorView(value.bytes() + 3000 * tutti::size_of(dtype), {1}, dtype).fill(bad);
      const test::DeviceTensor input(*rig, value);
      TensorRow row{.count = 3001, .dtype = dtype};
      row.inputs[0] = input.data();
      const auto table = rig->kernels().make_table();
      const test::DeviceTensor result(*rig, Tensor::zeros({1}, DType::float64));
      rig->kernels().squares(nullptr, *table, {&row, 1}, reinterpret_cast<double*>(result.data()));
      CHECK_FALSE(std::isfinite(result.read().values<double>()[0]));
    }
  }
}

TEST_CASE("squares do not depend on how a tensor's tiles are shared out") {
  std::mt19937 random(3);
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64}) {
    const Tensor value = test::random_tensor({100'003}, dtype, 1);
    const std::size_t size = tutti::size_of(dtype);
    const std::size_t each = optimizer::kSquaresTileBytes / size;
    std::vector<double> tiles(optimizer::squares_tiles(dtype, value.count()));
    for (std::size_t first = 0; first < tiles.size();) {
      const std::size_t now = std::min<std::size_t>(1 + random() % 9, tiles.size() - first);
      const std::size_t begin = first * each;
      optimizer::add_squares(dtype, value.bytes() + begin * size,
                             std::min(now * each, value.count() - begin),
                             std::span(tiles).subspan(first, now));
      first += now;
    }
    CHECK(optimizer::total_squares(tiles) == squares_on_cpu(value));
    double plain = 0;
    Tensor wide = Tensor::empty(value.shape(), DType::float64);
    wide.view().copy_from(value);
    for (const double element : wide.values<double>()) plain += element * element;
    CHECK(std::abs(plain / optimizer::total_squares(tiles) - 1) < 1e-12);
  }
}
