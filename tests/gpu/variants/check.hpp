// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tests/gpu/rig.hpp"
#include "tests/gpu/variants/variant.hpp"

namespace test::variants {

/// A sum or an update of tensors of one dtype.
struct Case {
  std::string name;
  std::string optimizer{};  ///< as optimizer::create() takes it; empty: a sum
  int num_inputs = 1;
  tutti::DType dtype = tutti::DType::float32;
  std::size_t offset = 0;  ///< elements behind an aligned address
  bool zeros = false;      ///< inputs and weights; else they are random
};

/// Sums of 2, 4 and 8, descent with momentum, adamw, also of 16-bit weights with a float32 copy,
/// and lamb; zeros, and unaligned starts.
std::vector<Case> all_cases();

/// What of the results is not that of the library's kernels, bit by bit, after three calls with
/// tensors of many sizes; empty if nothing. What the variant cannot run has no difference.
std::string difference(Rig& rig, Variant& variant, const Case& now);

}  // namespace test::variants
