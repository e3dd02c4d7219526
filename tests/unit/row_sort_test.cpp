// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <limits>
#include <random>

#include "runtime/store/sparse/sort.hpp"

namespace {

struct Numbered {
  std::int64_t id;
  std::size_t number;
  friend bool operator==(const Numbered&, const Numbered&) = default;
};

}  // namespace

TEST_CASE("sort_by_digits orders as a stable sort does, for any count and size of ids") {
  std::mt19937_64 random(7);
  for (const std::size_t count : {0, 1, 2, 127, 128, 129, 1000, 5000}) {
    for (const std::int64_t most :
         {std::int64_t{1}, std::int64_t{2}, std::int64_t{2048}, std::int64_t{2049},
          std::int64_t{10000000}, std::int64_t{1} << 44,
          std::numeric_limits<std::int64_t>::max()}) {
      CAPTURE(count);
      CAPTURE(most);
      std::vector<Numbered> values(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = {static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)), i};
      }
      std::vector<Numbered> expected = values;
      std::ranges::stable_sort(expected, {}, &Numbered::id);
      tutti::sort_by_digits(values, &Numbered::id);
      CHECK(values == expected);
    }
  }
}
