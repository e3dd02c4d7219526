// SPDX-License-Identifier: Apache-2.0
#include "runtime/communicator/refusals.hpp"

#include <algorithm>

#include "tutti/error.hpp"

namespace tutti {

std::string refusal(const ConstTensorView& tensor) {
  if (tensor.device().kind != DeviceKind::cpu) {
    return "a tensor on " + to_string(tensor.device()) +
           "; of tensors on GPUs there is the sum alone (allreduce), with both on one GPU";
  }
  if (tensor.bytes() == nullptr && tensor.count() > 0) return "a tensor without memory";
  return {};
}

std::string refusal(const ConstTensorView& input, const ConstTensorView& output) {
  if (fit(input, output)) return {};
  for (const auto* tensor : {&input, &output}) {
    if (const std::string why = refusal(*tensor); !why.empty()) return why;
  }
  if (!are_alike(input, output)) {
    return "input " + to_string(input) + " and output " + to_string(output) + " must be alike";
  }
  return "input and output overlap; they must be the same memory or apart";
}

bool has_average(DType dtype) {
  switch (dtype) {
    case DType::float16:
    case DType::bfloat16:
    case DType::float32:
    case DType::float64:
      return true;
    case DType::int8:
    case DType::uint8:
    case DType::int32:
    case DType::int64:
      return false;
  }
  return false;
}

/// Refuses averages of integers, which would not be integers.
std::string refusal_of_op(ReduceOp op, DType dtype) {
  if (fits(op, dtype)) return {};
  return std::string("avg of ") + to_string(dtype) +
         "; averages are of floating-point types: use sum, or convert first";
}

std::string refusal_of_root(int root, int size) {
  if (is_root(root, size)) return {};
  return "root " + std::to_string(root) + " is not a rank; expected 0 to " +
         std::to_string(size - 1);
}

std::string refusal_of_blocks(const ConstTensorView& input, const ConstTensorView& output,
                              bool counts_fit) {
  for (const auto* tensor : {&input, &output}) {
    if (const std::string why = refusal(*tensor); !why.empty()) return why;
  }
  if (!counts_fit || input.dtype() != output.dtype()) {
    return "input " + to_string(input) + " and output " + to_string(output) +
           " do not fit: one side holds one block per rank, of the other side's size and dtype";
  }
  if (!are_apart(input, output)) return "input and output overlap; they must be apart";
  return {};
}

std::string refusal_of_pair(const ConstTensorView& input, const ConstTensorView& output) {
  for (const auto* tensor : {&input, &output}) {
    if (const std::string why = refusal(*tensor); !why.empty()) return why;
  }
  if (input.dtype() != output.dtype()) {
    return "input " + to_string(input) + " and output " + to_string(output) +
           " must have one dtype";
  }
  if (!are_apart(input, output)) return "input and output overlap; they must be apart";
  return {};
}

std::string refusal_of_counts(const char* side, const ConstTensorView& tensor,
                              std::span<const std::size_t> counts, int size) {
  if (add_up(counts, tensor, size)) return {};
  const std::string place = std::string("counts of the ") + side;
  if (counts.size() != static_cast<std::size_t>(size)) {
    return place + ": expected " + std::to_string(size) + " numbers, one per rank, got " +
           std::to_string(counts.size());
  }
  return place + " do not add up to its " + std::to_string(tensor.count()) + " elements: " + side +
         " " + to_string(tensor);
}

void refuse(collectives::Engine& engine, const char* call,
            std::initializer_list<std::string> reasons) {
  const auto* const why = std::find_if(reasons.begin(), reasons.end(),
                                       [](const std::string& reason) { return !reason.empty(); });
  engine.throw_on_all_ranks(ErrorCode::invalid_argument, std::string(call) + ": " + *why);
}

}  // namespace tutti
