// SPDX-License-Identifier: Apache-2.0
// Sums of every type and operation, compared with a second implementation.
#include "collectives/kernels/reduce.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

using namespace tutti;
using namespace tutti::collectives;

namespace {

template <class T>
using ComputedIn = std::conditional_t<sizeof(T) == 2, float, T>;

template <class T>
T wrapped(ReduceOp op, T left, T right) {
  __extension__ using Wide = __int128;  // no product of two elements overflows it
  const Wide exact = op == ReduceOp::sum ? Wide{left} + Wide{right} : Wide{left} * Wide{right};
  return static_cast<T>(exact);
}

template <class T>
T combine(ReduceOp op, T left, T right) {
  if (op == ReduceOp::sum || op == ReduceOp::prod) {
    if constexpr (std::is_floating_point_v<T>) {
      const T result = op == ReduceOp::sum ? left + right : left * right;
      return std::isnan(result) ? std::numeric_limits<T>::quiet_NaN() : result;
    } else {
      return wrapped(op, left, right);
    }
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(left) || std::isnan(right)) return std::numeric_limits<T>::quiet_NaN();
    if (left == 0 && right == 0) {
      const bool negative = op == ReduceOp::min ? std::signbit(left) || std::signbit(right)
                                                : std::signbit(left) && std::signbit(right);
      return negative ? T{-0.0} : T{0.0};
    }
  }
  return op == ReduceOp::min ? std::min(left, right) : std::max(left, right);
}

template <class T>
T canonical_tree(ReduceOp op, const std::vector<T>& operands, std::size_t first, std::size_t n) {
  if (n == 1) return operands[first];
  std::size_t left = 1;
  while (left * 2 < n) left *= 2;
  return combine(op, canonical_tree(op, operands, first, left),
                 canonical_tree(op, operands, first + left, n - left));
}

template <class T>
T quotient(T sum, std::size_t divisor) {
  const auto result = static_cast<T>(sum / static_cast<T>(divisor));
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(result)) return std::numeric_limits<T>::quiet_NaN();
  }
  return result;
}

using Bytes = std::vector<std::byte>;

template <class From, class To>
Bytes expected_of(ReduceOp op, const std::vector<const std::byte*>& sources, std::size_t count) {
  Bytes result(count * sizeof(To));
  std::vector<ComputedIn<From>> operands(sources.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t s = 0; s < sources.size(); ++s) {
      From element;
      std::memcpy(&element, sources[s] + i * sizeof(From), sizeof(From));
      operands[s] = static_cast<ComputedIn<From>>(element);
    }
    const bool averages = op == ReduceOp::avg;
    auto whole = canonical_tree(averages ? ReduceOp::sum : op, operands, 0, operands.size());
    if (averages && sources.size() > 1) whole = quotient(whole, sources.size());
    const auto value = static_cast<To>(whole);
    std::memcpy(result.data() + i * sizeof(To), &value, sizeof(To));
  }
  return result;
}

/// The bytes that reduce() must write to each destination.
inline Bytes expected(const Reduction& reduction, const std::vector<const std::byte*>& sources,
                      std::size_t count) {
  if (sources.size() == 1 && reduction.from == reduction.to) {
    return Bytes(sources[0], sources[0] + count * size_of(reduction.from));
  }
  return visit(reduction.from, [&]<class From>(From) {
    if (reduction.to == reduction.from) {
      return expected_of<From, From>(reduction.op, sources, count);
    }
    if constexpr (sizeof(From) == 2) {
      return expected_of<From, float>(reduction.op, sources, count);
    } else if constexpr (std::is_same_v<From, float>) {
      return reduction.to == DType::float16
                 ? expected_of<float, Float16>(reduction.op, sources, count)
                 : expected_of<float, BFloat16>(reduction.op, sources, count);
    } else {
      return Bytes();
    }
  });
}

template <class T>
T special(std::size_t which) {
  if constexpr (std::is_integral_v<T>) {
    const T values[] = {0, 1, std::numeric_limits<T>::max(), std::numeric_limits<T>::min()};
    return values[which % 4];
  } else {
    using Computed = ComputedIn<T>;
    using Limits = std::numeric_limits<Computed>;
    const Computed values[] = {
        Computed{0},         -Computed{0},         Limits::infinity(),   -Limits::infinity(),
        Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::denorm_min(), -Limits::denorm_min() * 5};
    return static_cast<T>(values[which % 8]);
  }
}

/// Random elements: any bits, quarters of whole numbers, and one in eight a special value.
inline Bytes random_elements(DType type, std::size_t count, std::mt19937_64& random) {
  Bytes elements(count * size_of(type));
  for (std::byte& byte : elements) byte = static_cast<std::byte>(random());
  visit(type, [&]<class T>(T) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t dice = random();
      T value{};
      if (dice % 8 == 0) {
        value = special<T>(dice >> 8);
      } else if (!std::is_integral_v<T> && dice % 8 < 6) {
        value = static_cast<T>(static_cast<float>(static_cast<int>(dice >> 40)) / 4096.0f);
      } else {
        continue;  // any bits: NaNs with payload, subnormal and huge numbers
      }
      std::memcpy(elements.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return elements;
}

constexpr DType kTypes[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64,
                            DType::int8,    DType::uint8,    DType::int32,   DType::int64};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                             ReduceOp::avg};
constexpr std::size_t kCounts[] = {0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 1000, 4097};
constexpr Isa kIsas[] = {Isa::plain, Isa::avx2, Isa::avx512};
constexpr std::size_t kLarge = 100'003;

std::vector<Reduction> all_reductions() {
  std::vector<Reduction> all;
  for (const ReduceOp op : kOps) {
    for (const DType type : kTypes) {
      if (op != ReduceOp::avg || type < DType::int8) all.push_back({op, type, type});
    }
    for (const DType half : {DType::float16, DType::bfloat16}) {
      all.push_back({op, half, DType::float32});
      all.push_back({op, DType::float32, half});
    }
  }
  return all;
}

// One case: `sources` sources, `destinations` destinations, `shift` elements off a line, and the
// destinations `odd_bytes` more.

struct Case {
  Reduction reduction;
  std::size_t sources = 2;
  std::size_t destinations = 1;
  std::size_t count = 0;
  WritePolicy stores = WritePolicy::cached;
  std::size_t shift = 0;
  bool shift_each = false;   // every destination differently
  std::size_t in_place = 0;  // number of destinations that are the first sources
  std::size_t odd_bytes = 0;
};

constexpr std::byte kGuard{0xA5};
constexpr std::size_t kRoom = 256;

// `bytes` bytes with kRoom guard bytes before and after them, `shift_bytes` off a line.
class Guarded {
 public:
  Guarded(std::size_t bytes, std::size_t shift_bytes) : memory_(bytes + 3 * kRoom, kGuard) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data()) + kRoom;
    begin_ = memory_.data() + kRoom + (64 - address % 64) + shift_bytes;
    bytes_ = bytes;
  }
  [[nodiscard]] std::byte* data() { return begin_; }
  [[nodiscard]] bool holds(const Bytes& content) const {
    const std::byte* const end = memory_.data() + memory_.size();
    const auto untouched = [](std::byte byte) { return byte == kGuard; };
    return content.size() == bytes_ && std::equal(content.begin(), content.end(), begin_) &&
           std::all_of(memory_.data(), static_cast<const std::byte*>(begin_), untouched) &&
           std::all_of(static_cast<const std::byte*>(begin_ + bytes_), end, untouched);
  }

 private:
  Bytes memory_;
  std::byte* begin_;
  std::size_t bytes_;
};

// The memory of one case: sources, and destinations that are some of the sources or their own.
class Operands {
 public:
  Operands(const Case& each, const std::vector<Bytes>& data) {
    const std::size_t in_bytes = size_of(each.reduction.from);
    const std::size_t out_bytes = size_of(each.reduction.to);
    memory_.reserve(each.sources + each.destinations);  // so that they do not move
    for (const Bytes& source : data) {
      memory_.emplace_back(source.size(), each.shift * in_bytes);
      std::copy(source.begin(), source.end(), memory_.back().data());
      sources.push_back(memory_.back().data());
      if (outputs_.size() < each.in_place) outputs_.push_back(&memory_.back());
    }
    while (outputs_.size() < each.destinations) {
      const std::size_t shift = each.shift + (each.shift_each ? outputs_.size() : 0);
      memory_.emplace_back(each.count * out_bytes, shift * out_bytes + each.odd_bytes);
      outputs_.push_back(&memory_.back());
    }
    for (Guarded* output : outputs_) destinations.push_back(output->data());
  }

  [[nodiscard]] bool all_hold(const Bytes& content) const {
    return std::all_of(outputs_.begin(), outputs_.end(),
                       [&](const Guarded* output) { return output->holds(content); });
  }

  std::vector<const std::byte*> sources;
  std::vector<std::byte*> destinations;

 private:
  std::vector<Guarded> memory_;
  std::vector<Guarded*> outputs_;
};

// Reduces by every instruction set of this machine and compares with the oracle. Quiet unless
// wrong: there are too many cases for an assertion each.
void check(const Case& each) {
  std::mt19937_64 random(each.sources * 1000003 + each.count);
  const Reduction& reduction = each.reduction;
  std::vector<Bytes> data(each.sources);
  std::vector<const std::byte*> sources;
  for (Bytes& source : data) {
    source = random_elements(reduction.from, each.count, random);
    sources.push_back(source.data());
  }
  const Bytes right = expected(reduction, sources, each.count);

  for (const Isa isa : kIsas) {
    const Operands at(each, data);
    if (!reduce_with(isa, reduction, at.sources, at.destinations, each.count, each.stores))
      continue;
    if (at.all_hold(right)) continue;
    CAPTURE(static_cast<int>(isa));
    CAPTURE(static_cast<int>(reduction.op));
    CAPTURE(static_cast<int>(reduction.from));
    CAPTURE(static_cast<int>(reduction.to));
    CAPTURE(static_cast<int>(each.stores));
    CAPTURE(each.sources);
    CAPTURE(each.destinations);
    CAPTURE(each.count);
    FAIL("other bits than the oracle's, or a byte outside the destination was written");
  }
}

}  // namespace

TEST_CASE("every operation and pair of types gives the canonical tree's bits at every count") {
  for (const Reduction& reduction : all_reductions()) {
    for (const std::size_t count : kCounts) {
      for (const std::size_t sources : {1, 2, 3, 4}) check({reduction, sources, 1, count});
    }
  }
}

TEST_CASE("1 to 20 sources are combined in the canonical tree, above 8 by blocks") {
  for (const Reduction& reduction : all_reductions()) {
    for (std::size_t sources = 1; sources <= 20; ++sources) check({reduction, sources, 1, 65});
    for (const std::size_t sources : {33, 64, 65, 129}) check({reduction, sources, 1, 17});
  }
}

TEST_CASE("tiles do not show: 20 sources of many tiles have the same bits") {
  for (const Reduction& reduction : all_reductions()) check({reduction, 20, 1, 9001});
}

TEST_CASE("a large odd count of the common types is reduced to the end") {
  for (const DType type : {DType::float32, DType::bfloat16, DType::int8}) {
    for (const WritePolicy stores : {WritePolicy::cached, WritePolicy::streaming}) {
      check({{ReduceOp::sum, type, type}, 2, 2, kLarge, stores});
      check({{ReduceOp::sum, type, type}, 5, 3, kLarge, stores});
    }
  }
}

TEST_CASE("every destination gets the same bits") {
  for (const Reduction& reduction : all_reductions()) {
    for (const std::size_t destinations : {0, 1, 2, 3, 4, 5, 16}) {
      for (const std::size_t sources : {1, 2, 3, 4, 9}) {
        check({reduction, sources, destinations, 1500});
      }
    }
  }
}

TEST_CASE("a destination may be a source") {
  for (const Reduction& reduction : all_reductions()) {
    if (reduction.from != reduction.to) continue;
    for (const std::size_t ranks : {1, 2, 3, 4, 8, 11, 16}) {
      for (const WritePolicy stores : {WritePolicy::cached, WritePolicy::streaming}) {
        check({reduction, ranks, ranks, 1033, stores, 0, false, ranks});
        check({reduction, ranks, 1, 67, stores, 0, false, 1});
      }
    }
  }
}

TEST_CASE("streaming stores give the bits of cached ones") {
  for (const Reduction& reduction : all_reductions()) {
    for (const std::size_t count : kCounts) {
      check({reduction, 2, 1, count, WritePolicy::streaming});
      check({reduction, 2, 2, count, WritePolicy::streaming});
    }
    for (const std::size_t sources : {1, 3, 8, 9, 17}) {
      for (const std::size_t destinations : {1, 2, 3}) {
        check({reduction, sources, destinations, 1500, WritePolicy::streaming});
      }
    }
  }
}

TEST_CASE("pointers need be aligned to an element only, alike or not") {
  for (const Reduction& reduction : all_reductions()) {
    for (const std::size_t shift : {1, 5, 15}) {
      for (const std::size_t count : {3, 40, 1100}) {
        check({reduction, 2, 2, count, WritePolicy::cached, shift});
        check({reduction, 2, 2, count, WritePolicy::streaming, shift});
        check({reduction, 3, 3, count, WritePolicy::cached, shift, true});
        check({reduction, 3, 3, count, WritePolicy::streaming, shift, true});
        check({reduction, 1, 2, count, WritePolicy::streaming, shift, true});
      }
    }
  }
}

TEST_CASE("streaming stores reach memory that is not aligned to an element") {
  for (const Reduction& reduction : all_reductions()) {
    for (std::size_t odd_bytes = 1; odd_bytes < size_of(reduction.to); ++odd_bytes) {
      for (const std::size_t sources : {2, 3}) {
        for (const std::size_t destinations : {1, 2}) {
          Case each{reduction, sources, destinations, 1100, WritePolicy::streaming};
          each.odd_bytes = odd_bytes;
          check(each);
        }
      }
    }
  }
}

TEST_CASE("a copy by lines writes its bytes and no others, wherever it begins and ends") {
  constexpr std::size_t kRoom = 4096;
  std::mt19937 random(7);
  std::vector<std::byte> from(kRoom);
  for (std::byte& one : from) one = static_cast<std::byte>(random());
  for (const Isa isa : kIsas) {
    if (!has_isa(isa)) continue;
    for (int i = 0; i < 2000; ++i) {
      const std::size_t source = random() % 130;
      const std::size_t target = random() % 130;
      const std::size_t bytes = random() % (i < 300 ? 200 : kRoom - 130);
      std::vector<std::byte> to(kRoom, std::byte{0xee});
      std::vector<std::byte> expected = to;
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(source), bytes,
                  expected.begin() + static_cast<std::ptrdiff_t>(target));
      REQUIRE(copy_with(isa, to.data() + target, from.data() + source, bytes));
      REQUIRE(to == expected);
    }
  }
}

TEST_CASE("a split range has the bits of the whole") {
  std::mt19937_64 random(7);
  const Bytes left = random_elements(DType::float32, 1000, random);
  const Bytes right = random_elements(DType::float32, 1000, random);
  const std::byte* const sources[] = {left.data(), right.data()};
  const Bytes whole = expected({}, {left.data(), right.data()}, 1000);
  for (const std::size_t split : {1, 16, 333, 999}) {
    Bytes result(4000);
    std::byte* const head[] = {result.data()};
    reduce({}, sources, head, split, WritePolicy::cached);
    const std::byte* const rest[] = {left.data() + 4 * split, right.data() + 4 * split};
    std::byte* const tail[] = {result.data() + 4 * split};
    reduce({}, rest, tail, 1000 - split, WritePolicy::cached);
    CAPTURE(split);
    CHECK(result == whole);
  }
}

TEST_CASE("sums start from the first operand: -0 + -0 is -0") {
  const float zeros[] = {-0.0f, -0.0f};
  float result = 1;
  const std::byte* const sources[] = {reinterpret_cast<const std::byte*>(&zeros[0]),
                                      reinterpret_cast<const std::byte*>(&zeros[1])};
  std::byte* const destination[] = {reinterpret_cast<std::byte*>(&result)};
  reduce({}, sources, destination, 1, WritePolicy::cached);
  CHECK(result == 0);
  CHECK(std::signbit(result));
}

TEST_CASE("16-bit types are rounded once, at the end") {
  // 1 + 2^-9 and three times 2^-9 more: rounded at every step, bfloat16 would stay at 1.
  for (const std::size_t n : {4, 12}) {
    std::vector<BFloat16> elements(n, BFloat16(0x1p-9f));
    elements[0] = BFloat16(1.0f);
    std::vector<const std::byte*> sources;
    for (const BFloat16& each : elements) {
      sources.push_back(reinterpret_cast<const std::byte*>(&each));
    }
    BFloat16 result;
    std::byte* const destination[] = {reinterpret_cast<std::byte*>(&result)};
    reduce({ReduceOp::sum, DType::bfloat16, DType::bfloat16}, sources, destination, 1,
           WritePolicy::cached);
    CHECK(static_cast<float>(result) ==
          static_cast<float>(BFloat16(1.0f + static_cast<float>(n - 1) * 0x1p-9f)));
    CHECK(static_cast<float>(result) > 1.0f);
  }
}

TEST_CASE("vector_instructions names the best instruction set of this machine") {
  const std::string name = vector_instructions();
#if defined(__aarch64__)
  CHECK(name == "NEON");
#else
  const std::byte* const no_source[] = {nullptr};
  const bool avx512 = reduce_with(Isa::avx512, {}, no_source, {}, 0, WritePolicy::cached);
  const bool avx2 = reduce_with(Isa::avx2, {}, no_source, {}, 0, WritePolicy::cached);
  CHECK(name == (avx512 ? "AVX-512" : avx2 ? "AVX2" : "plain"));
#endif
}
