// SPDX-License-Identifier: Apache-2.0
#include "tutti/key.hpp"

#include <cstdint>
#include <doctest/doctest.h>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <variant>
#include <vector>

using tutti::Key;

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
