// SPDX-License-Identifier: Apache-2.0
// The caller's memory cannot be padded, so the sum is made in a copy of it.
#include "runtime/gpu/allreduce.hpp"

#include "runtime/digest.hpp"
#include "runtime/gpu/gpus.hpp"
#include "runtime/gpu/reducer.hpp"

namespace tutti::gpus {

namespace {

void require(Group& group, const ConstTensorView& input, const TensorView& output) {
  std::string why;
  if (input.shape() != output.shape() || input.dtype() != output.dtype()) {
    why = "input " + to_string(input.shape()) + " " + to_string(input.dtype()) + " and output " +
          to_string(output.shape()) + " " + to_string(output.dtype()) + " must be alike";
  } else if (find_gpus() == nullptr || input.device().index >= find_gpus()->count()) {
    why = "a tensor on " + to_string(input.device()) + ", which this process has not";
  }
  if (!why.empty())
    group.engine().throw_on_all_ranks(ErrorCode::invalid_argument, "allreduce: " + why);
}

/// A rank without memory says so while the others can still refuse.
Tensor new_bucket(Group& group, std::size_t bytes, Device device) {
  try {
    return Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::uint8, device);
  } catch (const Error& error) {
    group.engine().throw_on_all_ranks(error.code(), std::string("allreduce: ") + error.what());
  }
}

/// All ranks make this call, with tensors that are alike and on GPUs.
void announce(Group& group, const ConstTensorView& input) {
  const auto describe = [&] {
    return "allreduce (sum) of " + to_string(input.shape()) + " " + to_string(input.dtype()) +
           " on a GPU";
  };
  const std::uint64_t digest =
      Digest().add(input.shape(), input.dtype()).add(std::string_view("gpu")).value();
  group.engine().run({.kind = collectives::Kind::allreduce,
                      .digest = digest,
                      .segments = {},
                      .describe = describe});
}

}  // namespace

void allreduce(Group& group, const ConstTensorView& input, const TensorView& output) {
  require(group, input, output);
  const auto& topology = group.topology();
  const std::size_t unit = kGrain * topology.largest_node();
  const std::size_t bytes = (input.size_bytes() + unit - 1) / unit * unit;
  const Tensor bucket = new_bucket(group, bytes, input.device());
  announce(group, input);
  if (topology.size == 1) return output.copy_from(input);
  const auto gpus = require_gpus("allreduce", input.device());
  auto* data = const_cast<std::byte*>(bucket.bytes());
  const Part part{data, bytes / size_of(input.dtype()), input.dtype()};
  try {
    gpus->copy(data, input.device(), input.bytes(), input.device(), input.size_bytes());
    if (bytes > 0) group.reducer(gpus, input.device().index).allreduce({&part, 1});
    gpus->copy(output.bytes(), output.device(), data, output.device(), output.size_bytes());
  } catch (const Error& error) {
    group.engine().fail(error);
  }
}

}  // namespace tutti::gpus
