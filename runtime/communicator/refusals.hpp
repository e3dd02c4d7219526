// SPDX-License-Identifier: Apache-2.0
// Refusals: why the arguments of a collective are wrong, in words; an empty text if they are right.
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

/// Formats a tensor's type such as "(2, 3) float32".
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

// True if the refusal of these arguments would be empty. It exists because even an empty text costs
// a noticeable time in small calls.

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

/// True if there is one count for each rank, and together they are the tensor's elements.
inline bool add_up(std::span<const std::size_t> counts, const ConstTensorView& tensor, int size) {
  std::size_t left = tensor.count();
  for (const std::size_t count : counts) {
    if (count > left) return false;
    left -= count;
  }
  return left == 0 && counts.size() == static_cast<std::size_t>(size);
}

/// True for floating-point types, of which averages can be made.
bool has_average(DType dtype);

inline bool fits(ReduceOp op, DType dtype) { return op != ReduceOp::avg || has_average(dtype); }

std::string refusal(const ConstTensorView& tensor);
/// Refuses two tensors that are not alike, or whose memory overlaps without being the same.
std::string refusal(const ConstTensorView& input, const ConstTensorView& output);
std::string refusal_of_op(ReduceOp op, DType dtype);
std::string refusal_of_root(int root, int size);
/// Refuses tensors of a collective in which one side has a block for each rank.
std::string refusal_of_blocks(const ConstTensorView& input, const ConstTensorView& output,
                              bool counts_fit);
/// Refuses two tensors of different dtypes, or whose memory overlaps.
std::string refusal_of_pair(const ConstTensorView& input, const ConstTensorView& output);
/// Refuses a tensor that does not have the elements of all blocks together. `side` is "input" or
/// "output".
std::string refusal_of_counts(const char* side, const ConstTensorView& tensor,
                              std::span<const std::size_t> counts, int size);

/// Throws on all ranks, as the error of `call`, the first reason that is not empty. There must be
/// one.
[[noreturn]] void refuse(collectives::Engine& engine, const char* call,
                         std::initializer_list<std::string> reasons);

}  // namespace tutti
