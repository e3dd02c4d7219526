// SPDX-License-Identifier: Apache-2.0
#include "tutti/tensor.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <doctest/doctest.h>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "runtime/gpu/gpus.hpp"
#include "tests/support/checks.hpp"

using tutti::ConstTensorView;
using tutti::DType;
using tutti::Tensor;
using tutti::TensorView;

namespace {

constexpr auto kInvalid = tutti::ErrorCode::invalid_argument;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::initializer_list<DType> kDTypes = {DType::float16, DType::bfloat16, DType::float32,
                                                  DType::float64, DType::int8,     DType::uint8,
                                                  DType::int32,   DType::int64};

template <class T>
std::vector<T> elements(const ConstTensorView& view) {
  return {view.values<T>().begin(), view.values<T>().end()};
}

// The elements as double, without the library's own conversions where that is possible.
std::vector<double> doubles(const ConstTensorView& view) {
  std::vector<double> found;
  tutti::visit(view.dtype(), [&]<class T>(T) {
    for (const T value : view.values<T>()) {
      if constexpr (sizeof(T) == 2) {
        found.push_back(static_cast<float>(value));
      } else {
        found.push_back(static_cast<double>(value));
      }
    }
  });
  return found;
}

template <class T>
Tensor of(const std::vector<T>& values) {
  return Tensor::from(std::span<const T>(values));
}

static_assert(!std::is_copy_constructible_v<Tensor> && std::is_move_constructible_v<Tensor>);
static_assert(!std::is_copy_assignable_v<TensorView>);
static_assert(!std::is_convertible_v<const Tensor&, TensorView>);
static_assert(!std::is_constructible_v<TensorView, ConstTensorView>);

}  // namespace

TEST_CASE("full, zeros and ones hold the value in every dtype, aligned to 128 bytes") {
  for (const DType dtype : kDTypes) {
    CAPTURE(std::string(tutti::to_string(dtype)));
    CHECK(doubles(Tensor::full({2, 3}, 5, dtype)) == std::vector<double>(6, 5.0));
    CHECK(doubles(Tensor::zeros({3}, dtype)) == std::vector<double>(3, 0.0));
    CHECK(doubles(Tensor::ones({}, dtype)) == std::vector<double>(1, 1.0));
    const Tensor tensor = Tensor::empty({7}, dtype);
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.bytes()) % 128 == 0);
    CHECK(tensor.size_bytes() == 7 * size_of(dtype));
  }
}

TEST_CASE("a tensor of no elements may be made, filled, added and copied") {
  const Tensor none = Tensor::ones({0, 3});
  Tensor other = none.clone();
  other.view() += none.view();
  other.view().copy_from(none);
  CHECK(other.count() == 0);
}

TEST_CASE("from, clone and move keep the elements; clone has memory of its own") {
  Tensor tensor = of<float>({1, 2, 3});
  Tensor copy = tensor.clone();
  tensor.fill(9);
  CHECK(elements<float>(copy) == std::vector<float>{1, 2, 3});
  const Tensor moved = std::move(tensor);
  CHECK(elements<float>(moved) == std::vector<float>{9, 9, 9});
  CHECK(copy.shape() == tutti::Shape{3});
}

TEST_CASE("from copies lists, vectors, arrays and spans of every element type") {
  const std::vector<float> three = {1, 2, 3};
  std::vector<float> writable = three;
  const std::array<std::int64_t, 2> ids = {7, 1LL << 40};
  const std::vector<tutti::BFloat16> halves(4, tutti::BFloat16(1.5f));
  for (const Tensor& tensor :
       {Tensor::from(three), Tensor::from(std::span(three)), Tensor::from(std::span(writable)),
        Tensor::from<float>(writable), Tensor::from({1.0f, 2.0f, 3.0f})}) {
    CHECK(tensor.shape() == tutti::Shape{3});
    CHECK(elements<float>(tensor) == three);
  }
  CHECK(elements<std::int64_t>(Tensor::from(ids)) == std::vector<std::int64_t>{7, 1LL << 40});
  CHECK(elements<std::int64_t>(Tensor::from<std::int64_t>({7, 9}))[1] == 9);
  CHECK(Tensor::from({1, 2}).dtype() == DType::int32);
  CHECK(Tensor::from({0.5}).dtype() == DType::float64);
  CHECK(Tensor::from(halves).dtype() == DType::bfloat16);
  CHECK(Tensor::from(std::vector<float>{}).count() == 0);
}

TEST_CASE("from takes a shape, which must have as many elements") {
  const std::vector<float> six = {1, 2, 3, 4, 5, 6};
  const float array[] = {1, 2, 3, 4, 5, 6};
  for (const Tensor& tensor :
       {Tensor::from(six, {2, 3}), Tensor::from(std::span(six), {2, 3}),
        Tensor::from(array, {2, 3}), Tensor::from({1.f, 2.f, 3.f, 4.f, 5.f, 6.f}, {2, 3})}) {
    CHECK(tensor.shape() == tutti::Shape{2, 3});
    CHECK(elements<float>(tensor) == six);
  }
  CHECK(Tensor::from({4.0f}, {}).shape() == tutti::Shape{});
  test::expect_error(
      [&] {
        (void)Tensor::from(six, {2, 2});
      },
      kInvalid, {"expected 4 values for shape (2, 2), got 6"});
}

TEST_CASE("to_vector and value read elements of every dtype, converted as by copy_from") {
  for (const DType dtype : kDTypes) {
    CAPTURE(std::string(tutti::to_string(dtype)));
    Tensor tensor = Tensor::empty({2, 2}, dtype);
    tensor.view().copy_from(Tensor::from({1, 2, 3, 100}, {2, 2}));
    CHECK(tensor.to_vector<double>() == std::vector<double>{1, 2, 3, 100});
    CHECK(tensor.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 2, 3, 100});
    CHECK(tensor.value(3) == 100);
    CHECK(tensor.view().value<int>(2) == 3);
    CHECK(std::as_const(tensor).view().value() == 1);
    test::expect_error([&] { (void)tensor.value(4); }, kInvalid, {"below 4", "got 4"});
  }
  const Tensor large = Tensor::from<std::int64_t>({(1LL << 53) + 1});
  CHECK(large.value<std::int64_t>() == (1LL << 53) + 1);
  CHECK(large.value<std::int8_t>() == 1);
  CHECK(Tensor::from({-2.75f, 1e9f}).to_vector<std::uint8_t>() ==
        std::vector<std::uint8_t>{0, 255});
  CHECK(Tensor::zeros({0}, DType::float16).to_vector<float>().empty());
}

TEST_CASE("adopt uses the given memory and keeps its owner as long as the tensor lives") {
  auto owner = std::make_shared<std::vector<float>>(6, 2.0f);
  const std::weak_ptr<std::vector<float>> watch = owner;
  float* data = owner->data();
  {
    Tensor tensor = Tensor::adopt(std::move(owner), data, {2, 3}, DType::float32);
    tensor.fill(4);
    CHECK(data[5] == 4);
    CHECK(!watch.expired());
  }
  CHECK(watch.expired());
}

TEST_CASE("arithmetic is elementwise and in place, in every dtype") {
  for (const DType dtype : kDTypes) {
    CAPTURE(std::string(tutti::to_string(dtype)));
    Tensor tensor = Tensor::full({2, 3}, 10, dtype);
    const Tensor three = Tensor::full({2, 3}, 3, dtype);
    const TensorView stored = tensor;
    stored += three.view();
    CHECK(doubles(stored) == std::vector<double>(6, 13.0));
    stored += 2 * three.view();
    CHECK(doubles(stored) == std::vector<double>(6, 19.0));
    stored -= three.view() * 4;
    CHECK(doubles(stored) == std::vector<double>(6, 7.0));
    stored -= three.view();
    stored *= 5;
    CHECK(doubles(stored) == std::vector<double>(6, 20.0));
    stored += -1 * three.view();
    CHECK(doubles(stored) == std::vector<double>(6, 17.0));
  }
}

TEST_CASE("float32 computes in float32: product and sum are each rounded") {
  Tensor tensor = of<float>({3.0f, 0.1f});
  const Tensor input = of<float>({5.0f, 0.7f});
  tensor.view() += 0.01 * input.view();
  const volatile float product = 0.01f * 0.7f;  // volatile: no fused multiply-add
  CHECK(elements<float>(tensor) == std::vector<float>{3.0f + 0.05f, 0.1f + product});
}

TEST_CASE("16-bit floats compute in float32 and are rounded once") {
  Tensor tensor = Tensor::full({1}, 2048, DType::float16);
  tensor.view() += 0.5 * Tensor::full({1}, 3, DType::float16).view();  // 2049.5 lies nearer 2050
  CHECK(doubles(tensor) == std::vector<double>{2050});
  Tensor brain = Tensor::full({1}, 256, DType::bfloat16);
  brain.view() += Tensor::full({1}, 1, DType::bfloat16).view();  // 257: a tie, to even
  CHECK(doubles(brain) == std::vector<double>{256});
}

TEST_CASE("integers wrap around") {
  Tensor bytes = of<std::int8_t>({127, -128, 100});
  bytes.view() += of<std::int8_t>({1, -1, 100}).view();
  CHECK(elements<std::int8_t>(bytes) == std::vector<std::int8_t>{-128, 127, -56});
  Tensor unsigned_bytes = of<std::uint8_t>({1, 255});
  unsigned_bytes.view() -= of<std::uint8_t>({2, 0}).view();
  unsigned_bytes.view() *= 2;
  CHECK(elements<std::uint8_t>(unsigned_bytes) == std::vector<std::uint8_t>{254, 254});
  const auto most = std::numeric_limits<std::int64_t>::max();
  Tensor longs = of<std::int64_t>({most, most});
  longs.view() += of<std::int64_t>({1, most}).view();
  CHECK(elements<std::int64_t>(longs) ==
        std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min(), -2});
  Tensor ints = of<std::int32_t>({1 << 30});
  ints.view() *= 6;
  CHECK(elements<std::int32_t>(ints) ==
        std::vector<std::int32_t>{std::numeric_limits<std::int32_t>::min()});
}

TEST_CASE("a tensor may be added to itself") {
  Tensor tensor = of<float>({1, 2, 3});
  tensor.view() += 2 * tensor.view();
  CHECK(elements<float>(tensor) == std::vector<float>{3, 6, 9});
}

TEST_CASE("arithmetic and copies of other shapes are refused with expected and got") {
  Tensor tensor = Tensor::ones({2, 3});
  const Tensor other = Tensor::ones({3, 2});
  test::expect_error([&] { tensor.view() += other.view(); }, kInvalid, {"+=", "(2, 3)", "(3, 2)"});
  test::expect_error([&] { tensor.view() -= other.view(); }, kInvalid, {"-=", "(2, 3)", "(3, 2)"});
  test::expect_error([&] { tensor.view().copy_from(other); }, kInvalid,
                     {"copy_from", "expected shape (2, 3)", "got (3, 2)"});
  CHECK(elements<float>(tensor) == std::vector<float>(6, 1.0f));
}

TEST_CASE("arithmetic of other dtypes is refused with expected and got") {
  Tensor tensor = Tensor::ones({2});
  const Tensor other = Tensor::ones({2}, DType::int32);
  test::expect_error([&] { tensor.view() += other.view(); }, kInvalid,
                     {"expected dtype float32", "got int32", "copy_from"});
}

TEST_CASE("values of another type than the element type are refused with both") {
  const Tensor tensor = Tensor::ones({2});
  test::expect_error([&] { (void)tensor.values<double>(); }, kInvalid, {"float32", "float64"});
}

TEST_CASE("copy_from converts between all dtypes") {
  for (const DType from : kDTypes) {
    for (const DType to : kDTypes) {
      CAPTURE(std::string(tutti::to_string(from)));
      CAPTURE(std::string(tutti::to_string(to)));
      Tensor target = Tensor::zeros({5}, to);
      target.view().copy_from(Tensor::full({5}, 42, from));
      CHECK(doubles(target) == std::vector<double>(5, 42.0));
    }
  }
}

TEST_CASE("floats become integers towards zero; beyond the bounds the bound, NaN 0") {
  const Tensor floats = of<double>({2.9, -2.9, 300, -300, kNaN, kInfinity, -kInfinity});
  Tensor bytes = Tensor::empty({7}, DType::int8);
  bytes.view().copy_from(floats);
  CHECK(elements<std::int8_t>(bytes) == std::vector<std::int8_t>{2, -2, 127, -128, 0, 127, -128});
  Tensor unsigned_bytes = Tensor::empty({7}, DType::uint8);
  unsigned_bytes.view().copy_from(floats);
  CHECK(elements<std::uint8_t>(unsigned_bytes) ==
        std::vector<std::uint8_t>{2, 0, 255, 0, 0, 255, 0});
  const Tensor large = of<float>({0x1p63f, -0x1p63f, 0x1p62f});
  Tensor longs = Tensor::empty({3}, DType::int64);
  longs.view().copy_from(large);
  CHECK(elements<std::int64_t>(longs) ==
        std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::max(),
                                  std::numeric_limits<std::int64_t>::min(), std::int64_t{1} << 62});
}

TEST_CASE("integers become narrower integers by wrapping, and floats rounded to nearest") {
  Tensor bytes = Tensor::empty({3}, DType::int8);
  bytes.view().copy_from(of<std::int64_t>({257, -129, -1}));
  CHECK(elements<std::int8_t>(bytes) == std::vector<std::int8_t>{1, 127, -1});
  Tensor floats = Tensor::empty({1});
  floats.view().copy_from(of<std::int32_t>({(1 << 24) + 1}));
  CHECK(elements<float>(floats) == std::vector<float>{0x1p24f});
}

TEST_CASE("copies of one dtype keep every bit and may overlap") {
  std::vector<float> memory(10);
  std::iota(memory.begin(), memory.end(), 0.0f);
  memory[3] = -0.0f;
  tutti::view(memory.data() + 1, {8}).copy_from(tutti::view(memory.data(), {8}));
  CHECK(memory[8] == 7);
  CHECK(std::signbit(memory[4]));
}

TEST_CASE("a view borrows: it writes through, and keeps its shape") {
  std::vector<std::int32_t> memory(6, 1);
  const TensorView view = tutti::view(memory.data(), {2, 3});
  view *= 7;
  CHECK(memory == std::vector<std::int32_t>(6, 7));
  CHECK(view.dtype() == DType::int32);
  CHECK(view.shape() == tutti::Shape{2, 3});
}

TEST_CASE("cpu(i) tells tensors apart; a GPU that is not there is refused, with the reason") {
  tutti::gpus::replace_gpus(nullptr);
  CHECK(Tensor::ones({2}, DType::float32, tutti::cpu(3)).device() == tutti::cpu(3));
  test::expect_error([] { (void)Tensor::ones({2}, DType::float32, tutti::gpu(1)); }, kInvalid,
                     {"gpu(1)", "taken them away"});
  float value = 1;
  const TensorView view(&value, {1}, DType::float32, tutti::gpu(0));
  test::expect_error([&] { view.fill(2); }, kInvalid, {"gpu(0)", "taken them away"});
  test::expect_error([&] { view *= 2; }, kInvalid, {"gpu(0)", "taken them away"});
  test::expect_error([&] { view += view; }, kInvalid, {"gpu(0)", "taken them away"});
  CHECK(value == 1);
}

TEST_CASE("a tensor beyond the machine's memory is an error that names its shape") {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  test::expect_error([=] { (void)Tensor::empty({most}, DType::float64); },
                     tutti::ErrorCode::out_of_memory, {"9223372036854775807", "float64"});
}

TEST_CASE("a tensor that was moved from has no memory and no elements, and can be assigned to") {
  Tensor first = Tensor::ones({2, 3});
  const std::byte* memory = first.bytes();
  Tensor second = std::move(first);
  CHECK(first.bytes() == nullptr);  // NOLINT(bugprone-use-after-move): this is what is tested
  CHECK(first.shape() == tutti::Shape{0});
  CHECK(first.values<float>().empty());
  CHECK(second.bytes() == memory);
  CHECK(second.shape() == tutti::Shape{2, 3});
  first = std::move(second);
  CHECK(second.bytes() == nullptr);  // NOLINT(bugprone-use-after-move)
  CHECK(first.value(5) == 1);
  Tensor& same = first;
  first = std::move(same);
  CHECK(first.value(5) == 1);
}
