// SPDX-License-Identifier: Apache-2.0
// gpus::Kernels: sums and the arithmetic of tensors, bit by bit as on a CPU.
#include <doctest/doctest.h>
#include <optional>

#include "tests/gpu/rig.hpp"

using test::DeviceTensor;
using tutti::DType;
using tutti::Tensor;
using tutti::gpus::TensorRow;

namespace {

/// Around a tile's 1024 float32 elements, and around vectors.
const std::vector<std::int64_t> kCounts = {0, 1, 3, 31, 64, 1023, 1024, 1025, 4099, 20000};

/// A row of random inputs with what its sum must be.
struct SumRow {
  SumRow(test::Rig& rig, DType dtype, std::int64_t count, int num_inputs, std::size_t offset) {
    for (int i = 0; i < num_inputs; ++i) {
      values.push_back(test::random_tensor({count}, dtype, i, 3));
      inputs.push_back(std::make_unique<DeviceTensor>(rig, values.back(), offset));
    }
    output = std::make_unique<DeviceTensor>(rig, Tensor::zeros({count}, dtype), offset);
    row.num_inputs = num_inputs;
    for (int i = 0; i < num_inputs; ++i) row.inputs[i] = inputs[i]->data();
    row.output = output->data();
    row.count = static_cast<std::size_t>(count);
    row.dtype = dtype;
  }
  [[nodiscard]] bool is_right() const {
    const Tensor expected = row.in_tree ? test::sum_in_tree(values) : test::sum_in_order(values);
    return test::same_bytes(output->read(), expected) && output->is_guarded();
  }

  std::vector<Tensor> values;
  std::vector<std::unique_ptr<DeviceTensor>> inputs;
  std::unique_ptr<DeviceTensor> output;
  TensorRow row;
};

std::vector<TensorRow> rows_of(const std::vector<std::unique_ptr<SumRow>>& sums) {
  std::vector<TensorRow> rows;
  for (const auto& sum : sums) rows.push_back(sum->row);
  return rows;
}

}  // namespace

TEST_CASE("sums of 1 to 8 inputs have the bits of a CPU's, in every dtype, length and alignment") {
  const auto rig = test::make_rig();
  const auto table = rig->kernels().make_table();
  for (const DType dtype : test::all_dtypes()) {
    CAPTURE(std::string(to_string(dtype)));
    std::vector<std::unique_ptr<SumRow>> sums;
    for (int num_inputs = 1; num_inputs <= TensorRow::kMostInputs; ++num_inputs) {
      for (const std::int64_t count : kCounts) {
        for (const std::size_t offset : {0, 1}) {
          sums.push_back(std::make_unique<SumRow>(*rig, dtype, count, num_inputs, offset));
        }
      }
    }
    rig->kernels().sum(nullptr, *table, rows_of(sums));
    for (const auto& sum : sums) {
      CAPTURE(sum->row.num_inputs);
      CAPTURE(sum->row.count);
      CHECK(sum->is_right());
    }
  }
}

TEST_CASE("rows are summed in the canonical order where they say so, beside others") {
  const auto rig = test::make_rig();
  const auto table = rig->kernels().make_table();
  for (const DType dtype : test::all_dtypes()) {
    CAPTURE(std::string(to_string(dtype)));
    std::vector<std::unique_ptr<SumRow>> sums;
    for (int num_inputs = 2; num_inputs <= TensorRow::kMostInputs; ++num_inputs) {
      for (const std::int64_t count : {0, 3, 1025, 4099}) {
        for (const bool in_tree : {true, false}) {
          sums.push_back(std::make_unique<SumRow>(*rig, dtype, count, num_inputs, count % 2));
          sums.back()->row.in_tree = in_tree;
        }
      }
    }
    for (int round = 0; round < 2; ++round) {
      rig->kernels().sum(nullptr, *table, rows_of(sums));
      for (const auto& sum : sums) {
        CAPTURE(sum->row.num_inputs);
        CAPTURE(sum->row.in_tree);
        CHECK(sum->is_right());
        sum->row.in_tree = !sum->row.in_tree;  // the table notices
      }
    }
  }
}

TEST_CASE("rows of different dtypes are summed in one call") {
  const auto rig = test::make_rig();
  const auto table = rig->kernels().make_table();
  std::vector<std::unique_ptr<SumRow>> sums;
  for (int round = 0; round < 3; ++round) {
    for (const DType dtype : test::all_dtypes()) {
      sums.push_back(std::make_unique<SumRow>(*rig, dtype, 3000 + round, round + 2, 0));
    }
  }
  rig->kernels().sum(nullptr, *table, rows_of(sums));
  for (const auto& sum : sums) CHECK(sum->is_right());
}

TEST_CASE("an output may be one of its inputs") {
  const auto rig = test::make_rig();
  const auto table = rig->kernels().make_table();
  for (const std::int64_t count : {5, 5000}) {
    SumRow sum(*rig, DType::float32, count, 3, 0);
    sum.row.output = sum.inputs[1]->data();
    rig->kernels().sum(nullptr, *table, std::span(&sum.row, 1));
    CHECK(test::same_bytes(sum.inputs[1]->read(), test::sum_in_order(sum.values)));
  }
}

TEST_CASE("sums keep -0, overflow to infinity, and have one NaN") {
  const auto rig = test::make_rig();
  const auto table = rig->kernels().make_table();
  for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
    const double largest = dtype == DType::float16   ? 65504
                           : dtype == DType::float64 ? 1.7e308
                                                     : 3e38;
    const double infinity = std::numeric_limits<double>::infinity();
    const std::vector<std::vector<double>> special = {{-0.0, largest, infinity, NAN, -NAN, 1e-7},
                                                      {-0.0, largest, -infinity, 1, 1, -1e-7}};
    std::vector<Tensor> values;
    for (const auto& input : special) {
      Tensor wide = Tensor::zeros({6}, DType::float64);
      std::copy(input.begin(), input.end(), wide.values<double>().begin());
      values.push_back(Tensor::zeros({6}, dtype));
      values.back().view().copy_from(wide);
    }
    SumRow sum(*rig, dtype, 6, 2, 0);
    for (int i = 0; i < 2; ++i) {
      rig->write(sum.inputs[i]->data(), values[i].view().bytes(), values[i].size_bytes());
    }
    rig->kernels().sum(nullptr, *table, std::span(&sum.row, 1));
    CHECK(test::same_bytes(sum.output->read(), test::sum_in_order(values)));
  }
}

namespace {

/// Values that conversions have to decide on: NaN, infinities, halves, bounds of all integers.
Tensor special_values(DType dtype) {
  std::vector<double> list = {0.0,    -0.0,    0.5,    -0.5,         1.5,           2.5,
                              126.5,  127.5,   -128.5, -129,         255,           256,
                              65519,  65520,   70000,  1e-8,         6e-8,          -1e-300,
                              3e38,   1e39,    -1e39,  2147483647.0, -2147483648.0, 4294967296.0,
                              9.3e18, -9.3e18, 1e300,  1.0 / 3};
  list.push_back(std::numeric_limits<double>::quiet_NaN());
  list.push_back(std::numeric_limits<double>::infinity());
  list.push_back(-std::numeric_limits<double>::infinity());
  const auto count = static_cast<std::int64_t>(2500 + list.size());
  Tensor wide = test::random_tensor({count}, DType::float64, 4);
  std::copy(list.begin(), list.end(), wide.values<double>().begin());
  Tensor values = Tensor::empty({count}, dtype);
  values.view().copy_from(wide);
  return values;
}

}  // namespace

TEST_CASE("convert does what copy_from does, between all dtypes, bit by bit") {
  const auto rig = test::make_rig();
  for (const DType from : test::all_dtypes()) {
    for (const DType to : test::all_dtypes()) {
      for (const std::size_t offset : {0, 1}) {
        CAPTURE(std::string(to_string(from)) + " to " + to_string(to));
        const Tensor source = special_values(from);
        Tensor expected = Tensor::zeros(source.shape(), to);
        expected.view().copy_from(source);
        const DeviceTensor there(*rig, source, offset);
        const DeviceTensor converted(*rig, Tensor::zeros(source.shape(), to), offset);
        rig->kernels().convert(nullptr, converted.data(), to, there.data(), from, source.count());
        CHECK(test::same_bytes(converted.read(), expected));
        CHECK(converted.is_guarded());
      }
    }
  }
}

TEST_CASE("fill, scale, add and subtract do what a TensorView does, bit by bit") {
  const auto rig = test::make_rig();
  auto& kernels = rig->kernels();
  for (const DType dtype : test::all_dtypes()) {
    for (const std::int64_t count : kCounts) {
      for (const double factor : {2.5, -1.0, 0.1, -3.7}) {
        CAPTURE(std::string(to_string(dtype)));
        CAPTURE(factor);
        const auto size = static_cast<std::size_t>(count);
        Tensor expected = test::random_tensor({count}, dtype, 0);
        const Tensor other = test::random_tensor({count}, dtype, 1);
        const DeviceTensor target(*rig, expected, size % 2);
        const DeviceTensor source(*rig, other, size % 2);
        const auto follows = [&] {
          return test::same_bytes(target.read(), expected) && target.is_guarded();
        };
        kernels.add_scaled(nullptr, target.data(), dtype, size, factor, source.data());
        expected.view() += factor * other;
        CHECK(follows());
        kernels.subtract_scaled(nullptr, target.data(), dtype, size, factor, source.data());
        expected.view() -= factor * other;
        CHECK(follows());
        kernels.scale(nullptr, target.data(), dtype, size, factor);
        expected.view() *= factor;
        CHECK(follows());
        kernels.fill(nullptr, target.data(), dtype, size, factor);
        expected.fill(factor);
        CHECK(follows());
      }
    }
  }
}
