// SPDX-License-Identifier: Apache-2.0
// Stores of every type, and short words for what tests of a store look at.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>

#include "tutti/tutti.hpp"

#include "tests/support/mpi_test.hpp"

namespace test {

inline tutti::KVStore dist() { return tutti::KVStore::create("dist", settings()); }

/// Runs `body` for a new store of each type. `pushed` is the factor by which a value that every
/// rank pushes arrives: the number of ranks in "dist", one elsewhere.
inline void for_each_type(const std::function<void(tutti::KVStore& kv, float pushed)>& body) {
  for (const char* type : {"local", "device", "dist"}) {
    CAPTURE(std::string(type));
    tutti::KVStore kv = tutti::KVStore::create(type, settings());
    body(kv, std::string_view(type) == "dist" ? static_cast<float>(size()) : 1.0f);
  }
}

/// sum over ranks of (1 + rank), for data that differ between ranks.
inline float sum_of_ranks() { return static_cast<float>(size() * (size() + 1) / 2); }
inline float one_plus_rank() { return static_cast<float>(1 + rank()); }

inline tutti::Tensor filled(double value, tutti::Shape shape = {2, 3}) {
  return tutti::Tensor::full(shape, value);
}

/// True on every rank if every element is exactly `value`.
inline bool all_are(const tutti::ConstTensorView& tensor, float value,
                    Place where = Place::current()) {
  const auto values = tensor.values<float>();
  const auto wrong = std::ranges::find_if(values, [=](float found) { return found != value; });
  if (wrong != values.end()) MESSAGE("expected ", value, ", got ", *wrong);
  return agree(wrong == values.end(), where);
}

/// The same, to within float32's rounding.
inline bool all_near(const tutti::ConstTensorView& tensor, float value,
                     Place where = Place::current()) {
  const auto values = tensor.values<float>();
  const auto wrong = std::ranges::find_if(values, [=](float found) {
    return !(std::abs(found - value) <= 1e-6f * std::max(1.0f, std::abs(value)));
  });
  if (wrong != values.end()) MESSAGE("expected nearly ", value, ", got ", *wrong);
  return agree(wrong == values.end(), where);
}

/// What is stored under a key, after checking that a pull of it says the same as a view.
inline tutti::Tensor stored(const tutti::KVStore& kv, const tutti::Key& key) {
  const tutti::ConstTensorView view = kv.view(key);
  tutti::Tensor pulled = tutti::Tensor::full(view.shape(), 77, view.dtype());
  kv.pull(key, pulled);
  CHECK(same_bits(pulled, view));
  return pulled;
}

}  // namespace test
