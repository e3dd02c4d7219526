// SPDX-License-Identifier: Apache-2.0
#include "tutti/communicator.hpp"

#include "tutti/error.hpp"

#include "runtime/agree.hpp"
#include "runtime/digest.hpp"
#include "runtime/group.hpp"
#include "runtime/local/threads.hpp"
#include "runtime/mpi/bootstrap.hpp"

namespace tutti {

using collectives::Engine;
using collectives::Kind;
using collectives::Operation;
using collectives::Segment;

const char* to_string(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::prod:
      return "prod";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
  }
  return "unknown";
}

namespace {

std::string in_words(const ConstTensorView& tensor) {
  return to_string(tensor.shape()) + " " + to_string(tensor.dtype());
}

std::string refusal(const ConstTensorView& tensor) {
  if (tensor.device().kind != DeviceKind::cpu) {
    return "a tensor on " + to_string(tensor.device()) + "; this build has no GPU support";
  }
  if (tensor.bytes() == nullptr && tensor.count() > 0) return "a tensor without memory";
  return {};
}

std::string refusal(const ConstTensorView& input, const ConstTensorView& output) {
  for (const auto* tensor : {&input, &output}) {
    if (const std::string why = refusal(*tensor); !why.empty()) return why;
  }
  if (!(input.shape() == output.shape()) || input.dtype() != output.dtype()) {
    return "input " + in_words(input) + " and output " + in_words(output) + " must be alike";
  }
  const auto* end = input.bytes() + input.size_bytes();
  const bool apart = output.bytes() >= end || output.bytes() + output.size_bytes() <= input.bytes();
  if (!apart && input.bytes() != output.bytes()) {
    return "input and output overlap; they must be the same memory or apart";
  }
  return {};
}

}  // namespace

Communicator Communicator::world(const Settings& settings) {
  return Communicator(mpi::make_world_group(settings));
}

Communicator Communicator::self(const Settings& settings) {
  return Communicator(make_self_group(settings));
}

int Communicator::rank() const noexcept { return group_->topology().rank; }
int Communicator::size() const noexcept { return group_->topology().size; }
int Communicator::node() const noexcept { return group_->topology().node; }
int Communicator::num_nodes() const noexcept { return group_->topology().num_nodes(); }
int Communicator::local_rank() const noexcept { return group_->topology().local_rank; }
int Communicator::local_size() const noexcept { return group_->topology().local_size(); }

Tensor Communicator::allocate(Shape shape, DType dtype) { return group_->allocate(shape, dtype); }

void Communicator::allreduce(const ConstTensorView& input, const TensorView& output, ReduceOp op) {
  Engine& engine = group_->engine();
  if (const std::string why = refusal(input, output); !why.empty()) {
    engine.refuse(ErrorCode::invalid_argument, "allreduce: " + why);
  }
  const Segment segment{input.bytes(), output.bytes(), input.count(), input.dtype()};
  const auto describe = [&] {
    return std::string("allreduce (") + to_string(op) + ") of " + in_words(input);
  };
  engine.run({.kind = Kind::allreduce,
              .reduce = op,
              .digest = Digest().add(input.shape(), input.dtype()).value(),
              .segments = {&segment, 1},
              .describe = describe});
}

void Communicator::broadcast(const TensorView& tensor, int root) {
  Engine& engine = group_->engine();
  std::string why = refusal(tensor);
  if (root < 0 || root >= size()) {
    why = "root " + std::to_string(root) + " is not a rank; expected 0 to " +
          std::to_string(size() - 1);
  }
  if (!why.empty()) engine.refuse(ErrorCode::invalid_argument, "broadcast: " + why);
  const Segment segment{tensor.bytes(), tensor.bytes(), tensor.count(), tensor.dtype()};
  const auto describe = [&] {
    return "broadcast of " + in_words(tensor) + " from rank " + std::to_string(root);
  };
  engine.run({.kind = Kind::broadcast,
              .root = root,
              .digest = Digest().add(tensor.shape(), tensor.dtype()).value(),
              .segments = {&segment, 1},
              .describe = describe});
}

void Communicator::barrier() {
  const auto describe = [] { return std::string("barrier"); };
  group_->engine().run({.kind = Kind::barrier, .segments = {}, .describe = describe});
}

void Communicator::agree(const std::function<void()>& body) {
  tutti::agree(group_->engine(), body);
}

}  // namespace tutti
