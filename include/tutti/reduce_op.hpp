// SPDX-License-Identifier: Apache-2.0
// Reductions: how collectives combine the elements of several ranks.
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

/// The name of the reduction, such as "sum".
TUTTI_API const char* to_string(ReduceOp op) noexcept;

/// An operation of the program's own. It need not be commutative: operands are combined in the
/// canonical tree over ranks, whose left operand is always the lower ranks, in every layout.
struct UserOp {
  std::string name;  ///< for messages; the same on all ranks

  /// `left` becomes left (op) right. Both have one shape and dtype, and lie in the library's
  /// memory. It makes no calls of the communicator. If it throws, the call throws user_code on all
  /// ranks, and nothing is changed.
  std::function<void(const TensorView& left, const ConstTensorView& right)> combine;

  /// True: elements are combined one by one, so that ranks may share the work; `combine` then gets
  /// one-dimensional parts of any length. False: it gets whole tensors, on one rank.
  bool elementwise = false;

  /// True: the result of `combine` depends on its operands alone, so that it gives the same bits,
  /// or throws, on every rank. allreduce() and reduce() of few bytes (8 KiB of all ranks together)
  /// are then combined by every rank, which takes one meeting of the ranks instead of two. If it
  /// throws on some ranks alone all the same, the others learn of it in their next call.
  bool pure = false;
};

}  // namespace tutti
