// SPDX-License-Identifier: Apache-2.0
// What collectives do to the elements of several ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tutti/export.h"
#include "tutti/tensor.hpp"

namespace tutti {

/// Elementwise reductions. Integers wrap. min and max propagate NaN, and order -0 below +0. avg is
/// the sum, divided once by the number of ranks, of floating-point types alone.
enum class ReduceOp : std::uint8_t { sum, prod, min, max, avg };

/// "sum" and so on.
TUTTI_API const char* to_string(ReduceOp op) noexcept;

}  // namespace tutti
