// SPDX-License-Identifier: Apache-2.0
// The arithmetic of tensors (tensor.hpp) where they are on a GPU. Shapes, dtypes and devices have
// been checked.
#pragma once

#include "tutti/tensor.hpp"

#include "runtime/gpu/gpus.hpp"

namespace tutti::gpus {

void fill(const TensorView& target, double value);
void scale(const TensorView& target, double factor);
void add_scaled(const TensorView& target, double factor, const ConstTensorView& source);
void subtract_scaled(const TensorView& target, double factor, const ConstTensorView& source);
/// Copies between any devices, at least one of them a GPU; converts where the dtypes differ.
/// `wait`: see Gpus::copy().
void copy(const TensorView& target, const ConstTensorView& source, const Wait& wait = {});

}  // namespace tutti::gpus
