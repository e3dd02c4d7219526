// SPDX-License-Identifier: Apache-2.0
// Keys, shapes and element types, and lists of them as arguments.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <doctest/doctest.h>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <variant>
#include <vector>

#include "tutti/dtype.hpp"
#include "tutti/error.hpp"
#include "tutti/key.hpp"
#include "tutti/shape.hpp"
#include "tutti/tutti.hpp"

#include "tests/support/checks.hpp"

using tutti::Key;
using tutti::Shape;
using namespace tutti;

static_assert(std::is_convertible_v<int, Key> && std::is_convertible_v<std::uint8_t, Key>);
static_assert(std::is_convertible_v<const char*, Key> && std::is_convertible_v<std::string, Key>);
static_assert(std::is_convertible_v<std::string_view, Key>);
static_assert(!std::is_convertible_v<bool, Key> && !std::is_convertible_v<char, Key>);
static_assert(!std::is_convertible_v<double, Key> && !std::is_convertible_v<std::nullptr_t, Key>);

TEST_CASE("a key from an integer keeps its 64 bits") {
  const auto least = std::numeric_limits<std::int64_t>::min();
  const auto most = std::numeric_limits<std::int64_t>::max();
  CHECK(Key(3).number() == 3);
  CHECK(Key(-1).number() == -1);
  CHECK(Key(std::int64_t{1} << 40).number() == std::int64_t{1} << 40);
  CHECK(Key(least).number() == least);
  CHECK(Key(most).number() == most);
  CHECK(!Key(0).is_string());
  CHECK(Key(std::uint64_t{7}).number() == 7);
  CHECK(Key(static_cast<std::uint64_t>(most)).number() == most);
  CHECK_THROWS_WITH_AS((void)Key(std::uint64_t{1} << 63),
                       "key 9223372036854775808: expected an integer of 64 bits with a sign, or a "
                       "string",
                       tutti::Error);
}

TEST_CASE("a key from text keeps its bytes") {
  CHECK(Key("fc1.weight").text() == "fc1.weight");
  CHECK(Key(std::string("a\0b", 3)).text().size() == 3);
  CHECK(Key(std::string_view("")).text().empty());
  CHECK(Key("0").is_string());
}

TEST_CASE("asking a key for what it does not hold throws") {
  CHECK_THROWS_AS((void)Key(3).text(), std::bad_variant_access);
  CHECK_THROWS_AS((void)Key("3").number(), std::bad_variant_access);
}

TEST_CASE("keys are equal if kind and value are, and integers sort by value") {
  CHECK(Key(3) == Key(std::int64_t{3}));
  CHECK(Key("a") == Key(std::string("a")));
  CHECK(Key(3) != Key("3"));
  CHECK(Key(3) != Key((std::int64_t{1} << 32) + 3));
  const std::set<Key> sorted = {9, -4, std::int64_t{1} << 40, 7};
  CHECK(std::vector<Key>(sorted.begin(), sorted.end()) ==
        std::vector<Key>{-4, 7, 9, std::int64_t{1} << 40});
}

TEST_CASE("to_string prints numbers and bare text") {
  CHECK(to_string(Key(3)) == "3");
  CHECK(to_string(Key(std::numeric_limits<std::int64_t>::min())) == "-9223372036854775808");
  CHECK(to_string(Key("fc1.weight")) == "fc1.weight");
  CHECK(to_string(Key("")).empty());
}

TEST_CASE("equal keys have equal hashes and neighbours have different ones") {
  const std::hash<Key> hash;
  CHECK(hash(Key("weight")) == hash(Key(std::string("weight"))));
  std::unordered_set<std::size_t> hashes;
  for (int i = -1000; i < 1000; ++i) {
    hashes.insert(hash(i));
    hashes.insert(hash("layer" + std::to_string(i)));
  }
  CHECK(hashes.size() == 4000);
}

TEST_CASE("hashes are XXH3's, so that every process of a job computes the same") {
  CHECK(std::hash<Key>()(Key("")) == 0x2d06800538d394c2U);  // XXH3_64bits of no bytes
}

namespace {

constexpr auto kInvalid = tutti::ErrorCode::invalid_argument;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

}  // namespace

TEST_CASE("count is the product of the dimensions, 1 for a scalar") {
  CHECK(Shape().count() == 1);
  CHECK(Shape({7}).count() == 7);
  CHECK(Shape({2, 3}).count() == 6);
  CHECK(Shape({1, 2, 3, 4, 5, 6, 7, 8}).count() == 40320);
  CHECK(Shape({kMost}).count() == static_cast<std::size_t>(kMost));
}

TEST_CASE("a shape with an empty dimension has no elements, however large the others are") {
  CHECK(Shape({0}).count() == 0);
  CHECK(Shape({4, 0, 2}).count() == 0);
  CHECK(Shape({kMost, kMost, 0}).count() == 0);
}

TEST_CASE("dimensions are kept in order") {
  const Shape shape = {2, 1, 3};
  const std::vector<std::int64_t> found(shape.dimensions().begin(), shape.dimensions().end());
  CHECK(found == std::vector<std::int64_t>{2, 1, 3});
  CHECK(Shape().dimensions().empty());
}

TEST_CASE("shapes are equal if their dimensions are, not if only their counts are") {
  CHECK(Shape({2, 3}) == Shape({2, 3}));
  CHECK(Shape({2, 3}) != Shape({3, 2}));
  CHECK(Shape({6}) != Shape({2, 3}));
  CHECK(Shape({6, 1}) != Shape({6}));
  CHECK(Shape() != Shape({0}));
  CHECK(Shape() != Shape({1}));
}

TEST_CASE("a negative dimension is refused with its index and the shape") {
  test::expect_error([] { (void)Shape({2, -3}); }, kInvalid, {"(2, -3)", "-3", "index 1"});
  test::expect_error([] { (void)Shape({0, -1}); }, kInvalid, {"(0, -1)"});
}

TEST_CASE("more than eight dimensions are refused with both numbers") {
  test::expect_error([] { (void)Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}); }, kInvalid, {"8", "got 9"});
}

TEST_CASE("a number of elements beyond 63 bits is refused") {
  const std::int64_t half = std::int64_t{1} << 62;
  test::expect_error([=] { (void)Shape({half, 2}); }, kInvalid, {"2^63", "4611686018427387904"});
  test::expect_error([] { (void)Shape({kMost, kMost}); }, kInvalid, {"2^63"});
  CHECK(Shape({half, 1}).count() == static_cast<std::size_t>(half));
}

TEST_CASE("shapes and devices print as they are written") {
  CHECK(to_string(Shape({2, 3})) == "(2, 3)");
  CHECK(to_string(Shape({7})) == "(7)");
  CHECK(to_string(Shape()) == "()");
  CHECK(to_string(tutti::cpu()) == "cpu(0)");
  CHECK(to_string(tutti::gpu(3)) == "gpu(3)");
}

namespace {

// The formats by their definition, in exact double arithmetic, for comparison.
struct Format {
  int mantissa_bits;
  int exponent_bits;

  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] int largest_exponent() const { return (1 << exponent_bits) - 1; }

  [[nodiscard]] double value(std::uint16_t bits) const {
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const int exponent = bits >> mantissa_bits & largest_exponent();
    const double sign = bits >> 15 != 0 ? -1.0 : 1.0;
    if (exponent == largest_exponent()) {
      return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
    }
    const int leading = exponent != 0 ? 1 << mantissa_bits : 0;
    const int power = std::max(exponent, 1) - bias() - mantissa_bits;
    return sign * std::ldexp(leading + mantissa, power);
  }

  // Rounds to nearest, ties to even, by counting units of the last place.
  [[nodiscard]] std::uint16_t round(float number) const {
    const auto sign = static_cast<std::uint16_t>(std::signbit(number) ? 0x8000 : 0);
    const double size = std::fabs(static_cast<double>(number));
    const int infinity = largest_exponent() << mantissa_bits;
    if (std::isnan(number)) return static_cast<std::uint16_t>(infinity | 1 << (mantissa_bits - 1));
    if (std::isinf(number)) return static_cast<std::uint16_t>(sign | infinity);
    if (size == 0) return sign;
    const int power = std::max(std::ilogb(size), 1 - bias());
    const double units = std::nearbyint(std::ldexp(size, mantissa_bits - power));
    const double bits =
        units + std::ldexp(power + bias() - 1, mantissa_bits);  // a carry raises the exponent
    return static_cast<std::uint16_t>(sign | static_cast<int>(std::fmin(bits, infinity)));
  }
};

constexpr Format kBinary16{10, 5};
constexpr Format kUpperHalf{7, 8};

template <class Half>
void check_widening(const Format& format) {
  std::vector<int> wrong;
  for (int bits = 0; bits <= 0xFFFF; ++bits) {
    Half half;
    half.bits = static_cast<std::uint16_t>(bits);
    const float widened = static_cast<float>(half);
    const double expected = format.value(half.bits);
    const bool same = std::isnan(expected) ? std::isnan(widened) : widened == expected;
    if (!same || std::signbit(widened) != (bits >> 15 != 0)) wrong.push_back(bits);
  }
  CHECK(wrong == std::vector<int>());
}

template <class Half>
void check_rounding(const Format& format, std::uint32_t float_bits) {
  const float number = std::bit_cast<float>(float_bits);
  const Half rounded(number);
  if (rounded.bits != format.round(number)) {
    CAPTURE(float_bits);
    REQUIRE(rounded.bits == format.round(number));
  }
}

template <class Half>
void check_rounding_everywhere(const Format& format) {
  // Around every value of the format and every tie between two, and at random.
  for (std::uint32_t half = 0; half <= 0xFFFF; ++half) {
    Half exact;
    exact.bits = static_cast<std::uint16_t>(half);
    const auto middle = std::bit_cast<std::uint32_t>(static_cast<float>(exact));
    for (const std::uint32_t offset : {0u, 1u, ~0u, 0x0FFFu, 0x1000u, 0x1001u, 0x7FFFu, 0x8000u,
                                       0x8001u, 0x800000u, 0x400000u, 0x400001u, 0x600000u}) {
      check_rounding<Half>(format, middle + offset);
    }
  }
  std::mt19937 random(1);  // always the same numbers
  for (int i = 0; i < 1'000'000; ++i)
    check_rounding<Half>(format, static_cast<std::uint32_t>(random()));
}

}  // namespace

TEST_CASE("float16 widens to the number that its bits mean") { check_widening<Float16>(kBinary16); }

TEST_CASE("bfloat16 widens to the number that its bits mean") {
  check_widening<BFloat16>(kUpperHalf);
}

TEST_CASE("float16 rounds to nearest even: subnormals, infinity and NaN included") {
  check_rounding_everywhere<Float16>(kBinary16);
}

TEST_CASE("bfloat16 rounds to nearest even: subnormals, infinity and NaN included") {
  check_rounding_everywhere<BFloat16>(kUpperHalf);
}

TEST_CASE("float16 has the well-known bit patterns") {
  CHECK(Float16(1.0f).bits == 0x3C00);
  CHECK(Float16(-2.0f).bits == 0xC000);
  CHECK(Float16(65504.0f).bits == 0x7BFF);
  CHECK(Float16(65519.996f).bits == 0x7BFF);
  CHECK(Float16(65520.0f).bits == 0x7C00);
  CHECK(Float16(0x1p-24f).bits == 0x0001);
  CHECK(Float16(0x1p-25f).bits == 0x0000);
  CHECK(Float16(0x1.8p-24f).bits == 0x0002);
  CHECK(Float16(-0.0f).bits == 0x8000);
}

TEST_CASE("parse_dtype is the inverse of to_string") {
  for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64,
                            DType::int8, DType::uint8, DType::int32, DType::int64}) {
    CHECK(parse_dtype(to_string(dtype)) == dtype);
  }
  CHECK(std::string(to_string(DType::bfloat16)) == "bfloat16");
  CHECK(std::string(to_string(DType::uint8)) == "uint8");
}

TEST_CASE("parse_dtype refuses an unknown name with the list of names") {
  try {
    parse_dtype("float");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    CHECK(std::string(error.what()) ==
          "unknown element type 'float'; expected one of float16, bfloat16, float32, float64, "
          "int8, uint8, int32, int64");
  }
}

TEST_CASE("an error code has a name and an exit code") {
  CHECK(std::string(to_string(ErrorCode::mismatch)) == "mismatch");
  CHECK(std::string(to_string(ErrorCode::corrupt_file)) == "corrupt_file");
  CHECK(exit_code(ErrorCode::invalid_argument) == 1);
  CHECK(exit_code(ErrorCode::timeout) == 4);
  CHECK(exit_code(ErrorCode::divergence) == 3);
  CHECK(std::string(to_string(ErrorCode::divergence)) == "divergence");
  for (const ErrorCode code :
       {ErrorCode::mismatch, ErrorCode::communication, ErrorCode::out_of_memory, ErrorCode::io,
        ErrorCode::corrupt_file, ErrorCode::user_code}) {
    CHECK(exit_code(code) == 2);
  }
}

// --- lists as arguments --------------------------------------------------------------------------

// Every form in which a call takes keys and values compiles and has its meaning.

namespace {

std::vector<Key> list_of(const Keys& keys) { return {keys.list().begin(), keys.list().end()}; }
bool is_single(const Keys& keys) { return keys.is_single(); }

std::vector<std::size_t> groups_of(const Values& values) {
  return {values.groups().begin(), values.groups().end()};
}
std::size_t count_of(const Values& values) { return values.flat().size(); }
std::size_t count_of_outputs(const Outputs& outputs) { return outputs.flat().size(); }
bool is_nested(const Values& values) { return values.is_nested(); }
const std::byte* address(const Values& values, std::size_t i) { return values.flat()[i].bytes(); }

float first(const KVStore& kv, const Key& key) { return kv.view(key).values<float>()[0]; }
Tensor filled(double value) { return Tensor::full({2, 3}, value); }

KVStore store_with(const Keys& keys) {
  KVStore kv = KVStore::create("local");
  for (const Key& key : keys.list()) kv.init(key, filled(0));
  return kv;
}

}  // namespace

TEST_CASE("one key is single: integers of any width, 0, and text of any kind") {
  CHECK(list_of(0) == std::vector<Key>{0});
  CHECK(list_of(std::size_t{7}) == std::vector<Key>{7});
  CHECK(list_of("weight") == std::vector<Key>{"weight"});
  CHECK(list_of(std::string("weight")) == std::vector<Key>{"weight"});
  CHECK(list_of(std::string_view("weight")) == std::vector<Key>{"weight"});
  CHECK(list_of(Key(3)) == std::vector<Key>{3});
  CHECK(is_single(3));
  CHECK(is_single("weight"));
  CHECK(!is_single({3}));
}

TEST_CASE("key lists: braces, vectors, arrays and spans of keys, numbers or text") {
  CHECK(list_of({5, 7, 9}) == std::vector<Key>{5, 7, 9});
  CHECK(list_of({"a", "b"}) == std::vector<Key>{"a", "b"});
  CHECK(list_of(std::vector<int>{5, 7}) == std::vector<Key>{5, 7});
  CHECK(list_of(std::vector<std::string>{"a", "b", "c"}) == std::vector<Key>{"a", "b", "c"});
  CHECK(list_of(std::vector<Key>{1, 2}) == std::vector<Key>{1, 2});
  CHECK(list_of(std::array<std::int64_t, 2>{1, 2}) == std::vector<Key>{1, 2});
  CHECK(list_of(std::deque<const char*>{"x"}) == std::vector<Key>{"x"});
  const std::vector<Key> keys = {3, 4};
  CHECK(list_of(std::span<const Key>(keys)) == keys);
  CHECK(list_of(std::vector<Key>{}).empty());
  CHECK(!is_single(std::vector<int>{3}));
}

TEST_CASE("values: one tensor, const or not, a view, a temporary") {
  Tensor tensor = filled(1);
  const Tensor constant = filled(1);
  CHECK(address(tensor, 0) == tensor.bytes());
  CHECK(address(constant, 0) == constant.bytes());
  CHECK(address(tensor.view(), 0) == tensor.bytes());
  CHECK(address(constant.view(), 0) == constant.bytes());
  CHECK(count_of(filled(1)) == 1);
  CHECK(!is_nested(tensor));
}

TEST_CASE("values: flat lists in braces and containers keep the order and the memory") {
  Tensor a = filled(1);
  const Tensor b = filled(2);
  CHECK(count_of({a, b, a}) == 3);
  CHECK(address({a, b}, 1) == b.bytes());
  std::vector<Tensor> tensors;
  tensors.push_back(filled(1));
  tensors.push_back(filled(2));
  CHECK(address(tensors, 1) == tensors[1].bytes());
  const std::vector<Tensor>& constants = tensors;
  CHECK(address(constants, 1) == tensors[1].bytes());
  const std::vector<ConstTensorView> views = {a, b};
  CHECK(address(views, 1) == b.bytes());
  const std::vector<TensorView> writable = {a, tensors[0]};
  CHECK(address(writable, 0) == a.bytes());
  CHECK(count_of(std::vector<Tensor>{}) == 0);
  CHECK(!is_nested(tensors));
}

TEST_CASE("values: lists of lists keep their groups, empty ones too") {
  Tensor a = filled(1);
  Tensor b = filled(2);
  CHECK(groups_of({{a, b}, {b}, {a, a, a}}) == std::vector<std::size_t>{2, 1, 3});
  std::vector<std::vector<Tensor>> lists(3);
  lists[0].push_back(filled(1));
  lists[2].push_back(filled(2));
  CHECK(groups_of(lists) == std::vector<std::size_t>{1, 0, 1});
  CHECK(address(lists, 1) == lists[2][0].bytes());
  const std::vector<std::vector<ConstTensorView>> views = {{a}, {b, a}};
  CHECK(groups_of(views) == std::vector<std::size_t>{1, 2});
  CHECK(is_nested(lists));
}

TEST_CASE("outputs: one, braces, containers, lists of lists") {
  Tensor a = filled(1);
  Tensor b = filled(2);
  std::vector<Tensor> tensors;
  tensors.push_back(filled(1));
  std::vector<std::vector<Tensor>> lists(1);
  lists[0].push_back(filled(1));
  CHECK(count_of_outputs(a) == 1);
  CHECK(count_of_outputs(a.view()) == 1);
  CHECK(count_of_outputs({a, b, a}) == 3);
  CHECK(count_of_outputs(tensors) == 1);
  CHECK(count_of_outputs(lists) == 1);
  CHECK(count_of_outputs(std::vector<TensorView>{a, b}) == 2);
  static_assert(!std::is_convertible_v<const Tensor&, Outputs>);
  static_assert(!std::is_convertible_v<ConstTensorView, Outputs>);
}

TEST_CASE("the calls of the documentation compile and run: init, push, pull, view") {
  auto kv = KVStore::create("local");
  kv.init(3, Tensor::full({2, 3}, 2.0f));
  kv.push(3, Tensor::full({2, 3}, 8.0f));
  Tensor a = Tensor::zeros({2, 3});
  kv.pull(3, a);
  auto w = kv.view(3);
  CHECK(w.values<float>()[5] == 8);
  const Tensor g0 = filled(1);
  Tensor g1 = filled(1);
  Tensor g2 = filled(1);
  Tensor g3 = filled(1);
  kv.push(3, {g0, g1, g2, g3});
  CHECK(first(kv, 3) == 4);
}

TEST_CASE("the calls of the documentation compile and run: lists, pushpull, broadcast") {
  KVStore kv = store_with({5, 7, 9});
  const Tensor a5 = filled(5);
  const Tensor a7 = filled(7);
  const Tensor a9 = filled(9);
  kv.push({5, 7, 9}, {a5, a7, a9});
  CHECK(first(kv, 7) == 7);
  const std::vector<int> keys = {5, 7, 9};
  std::vector<Tensor> grads;
  std::vector<Tensor> outs;
  for (int i = 0; i < 3; ++i) {
    grads.push_back(filled(i));
    outs.push_back(filled(0));
  }
  kv.pushpull(keys, grads, outs);
  CHECK(outs[2].values<float>()[0] == 2);
  kv.pushpull(keys, grads);
  const std::vector<int> new_keys = {1, 2, 4};
  kv.broadcast(new_keys, grads, outs);
  CHECK(first(kv, 4) == 2);
}

TEST_CASE("the calls of the documentation compile and run: updater, optimizer, allocate") {
  KVStore kv = store_with(3);
  kv.set_updater([](const Key& key, ConstTensorView input, TensorView stored) {
    CHECK(key == Key(3));
    stored += 2 * input;
  });
  kv.push(3, filled(1));
  CHECK(first(kv, 3) == 2);
  kv.set_optimizer(optimizer::sgd({.learning_rate = 0.1, .momentum = 0.9}));
  kv.push(3, filled(10));
  CHECK(first(kv, 3) == doctest::Approx(1));
  Tensor g = kv.allocate({1 << 20});
  kv.init(4, g);
  kv.push(4, g);
  CHECK(kv.rank() == 0);
  CHECK(kv.num_workers() == 1);
  kv.barrier();
  CHECK(kv.type() == "local");
}

TEST_CASE("key 0 is a key and no null pointer, also beside priority") {
  KVStore kv = store_with(0);
  const Tensor value = filled(3);
  kv.push(0, value);
  kv.push(0, value, 0);
  kv.push({0}, {value}, -1);
  Tensor out = filled(0);
  kv.pushpull(0, value, out, 0);
  kv.pull(0, out);
  CHECK(out.values<float>()[0] == 3);
}
