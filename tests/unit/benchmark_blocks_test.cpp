// SPDX-License-Identifier: Apache-2.0
// collective-benchmark: the results that it expects of blocks, messages and averages.
#include <cmath>
#include <cstddef>
#include <doctest/doctest.h>

#include "apps/benchmark/cases.hpp"
#include "apps/benchmark/pattern.hpp"

using namespace apps::benchmark;
using tutti::DType;
using tutti::ReduceOp;

TEST_CASE("blocks and messages are told by source and place") {
  CHECK(find_case("gather").expected(12, 2, 3, 2).size() == 3);
  CHECK(find_case("gather").expected(12, 1, 3, 2).empty());
  CHECK(find_case("scatter").expected(4, 2, 3, 1)[0].source == 1);
  CHECK(find_case("scatter").expected(4, 2, 3, 1)[0].first == 8);
  const auto exchanged = find_case("alltoall").expected(12, 1, 3, 0);
  REQUIRE(exchanged.size() == 3);
  CHECK(exchanged[2].source == 2);
  CHECK(exchanged[2].first == 4);
  CHECK(find_case("sendrecv").expected(5, 3, 4, 0)[0].source == 2);
  CHECK(find_case("sendrecv").expected(5, 2, 3, 0).empty());
}

TEST_CASE("averages are whole numbers that every type has") {
  for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
    for (const int ranks : {1, 2, 3, 8, 16}) {
      const Pattern pattern(dtype, ReduceOp::avg, ranks);
      bool whole = true;
      bool differs = false;
      for (std::size_t phase = 0; phase < kPeriod; ++phase) {
        const double average = pattern.reduced(1, phase);
        whole = whole && average == std::floor(average) && std::abs(average) <= 7.0 * ranks;
        differs = differs || average != pattern.reduced(2, phase);
      }
      CAPTURE(ranks);
      CHECK(whole);
      CHECK(differs);
    }
  }
}
