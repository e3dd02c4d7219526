// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/tensor.hpp"

namespace tutti {

/// True if both views are the same tensor: the same memory, shape and dtype on one device.
inline bool are_one(const ConstTensorView& left, const ConstTensorView& right) {
  return left.bytes() == right.bytes() && left.shape() == right.shape() &&
         left.dtype() == right.dtype() && left.device() == right.device();
}

}  // namespace tutti
