// SPDX-License-Identifier: Apache-2.0
#include "tutti/shape.hpp"

#include <cstdint>
#include <doctest/doctest.h>
#include <limits>
#include <string>
#include <vector>

#include "tutti/error.hpp"

#include "tests/unit/expect_error.hpp"

using tutti::Shape;

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
