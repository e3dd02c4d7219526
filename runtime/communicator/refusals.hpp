// SPDX-License-Identifier: Apache-2.0
// What is wrong with the arguments of a collective, in words; an empty text if nothing is.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>

#include "tutti/dtype.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/tensor.hpp"

#include "collectives/engine/engine.hpp"

namespace tutti {

/// "(2, 3) float32".
inline std::string to_string(const ConstTensorView& tensor) {
  return to_string(tensor.shape()) + " " + to_string(tensor.dtype());
}

inline bool is_usable(const ConstTensorView& tensor) {
  return tensor.device().kind == DeviceKind::cpu &&
         (tensor.bytes() != nullptr || tensor.count() == 0);
}

inline bool are_apart(const ConstTensorView& input, const ConstTensorView& output) {
  return input.size_bytes() == 0 || output.size_bytes() == 0 ||
         output.bytes() >= input.bytes() + input.size_bytes() ||
         output.bytes() + output.size_bytes() <= input.bytes();
}

inline bool are_alike(const ConstTensorView& input, const ConstTensorView& output) {
  return input.shape() == output.shape() && input.dtype() == output.dtype();
}

// True if the refusal of these arguments has nothing to say: small calls notice what a text costs,
// even an empty one.

inline bool fit(const ConstTensorView& input, const ConstTensorView& output) {
  if (!are_alike(input, output) || !is_usable(input)) return false;
  if (input.bytes() == output.bytes()) return output.device().kind == DeviceKind::cpu;
  return is_usable(output) && are_apart(input, output);
}

inline bool is_root(int root, int size) { return root >= 0 && root < size; }

inline bool are_pair(const ConstTensorView& input, const ConstTensorView& output) {
  return is_usable(input) && is_usable(output) && input.dtype() == output.dtype() &&
         are_apart(input, output);
}

inline bool are_blocks(const ConstTensorView& input, const ConstTensorView& output,
                       bool counts_fit) {
  return counts_fit && are_pair(input, output);
}

/// One count for each rank, and together the tensor's elements.
inline bool add_up(std::span<const std::size_t> counts, const ConstTensorView& tensor, int size) {
  std::size_t left = tensor.count();
  for (const std::size_t count : counts) {
    if (count > left) return false;
    left -= count;
  }
  return left == 0 && counts.size() == static_cast<std::size_t>(size);
}

/// True if the average of elements of this type is one.
bool has_average(DType dtype);

inline bool fits(ReduceOp op, DType dtype) { return op != ReduceOp::avg || has_average(dtype); }

std::string refusal(const ConstTensorView& tensor);
/// For two that must be alike, and the same memory or apart.
std::string refusal(const ConstTensorView& input, const ConstTensorView& output);
std::string refusal_of_op(ReduceOp op, DType dtype);
std::string refusal_of_root(int root, int size);
/// For collectives in which one side holds a block per rank.
std::string refusal_of_blocks(const ConstTensorView& input, const ConstTensorView& output,
                              bool counts_fit);
/// For two that must have one dtype and be apart.
std::string refusal_of_pair(const ConstTensorView& input, const ConstTensorView& output);
/// For the elements of each rank's block: `side` ("input") must hold all of them.
std::string refusal_of_counts(const char* side, const ConstTensorView& tensor,
                              std::span<const std::size_t> counts, int size);

/// Throws the first text that is not empty, on all ranks, as what is wrong with `call`. One of them
/// is not empty.
[[noreturn]] void refuse(collectives::Engine& engine, const char* call,
                         std::initializer_list<std::string> reasons);

}  // namespace tutti
