// SPDX-License-Identifier: Apache-2.0
#include "tutti/communicator.hpp"

#include <vector>

#include "tutti/error.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/gpu_sum/sum_over_ranks.hpp"
#include "runtime/job/agree.hpp"
#include "runtime/job/group.hpp"
#include "runtime/job/tuning_file.hpp"
#include "runtime/local/threads.hpp"
#include "runtime/mpi/bootstrap.hpp"
#include "runtime/observe/statistics.hpp"

namespace tutti {

using collectives::Engine;
using collectives::kEveryRank;
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
    case ReduceOp::avg:
      return "avg";
  }
  return "unknown";
}

namespace {

std::string to_string(const ConstTensorView& tensor) {
  return to_string(tensor.shape()) + " " + to_string(tensor.dtype());
}

bool is_usable(const ConstTensorView& tensor) {
  return tensor.device().kind == DeviceKind::cpu &&
         (tensor.bytes() != nullptr || tensor.count() == 0);
}

std::string refusal(const ConstTensorView& tensor) {
  if (tensor.device().kind != DeviceKind::cpu) {
    return "a tensor on " + to_string(tensor.device()) +
           "; of tensors on GPUs there is the sum alone (allreduce), with both on one GPU";
  }
  if (tensor.bytes() == nullptr && tensor.count() > 0) return "a tensor without memory";
  return {};
}

bool are_apart(const ConstTensorView& input, const ConstTensorView& output) {
  return input.size_bytes() == 0 || output.size_bytes() == 0 ||
         output.bytes() >= input.bytes() + input.size_bytes() ||
         output.bytes() + output.size_bytes() <= input.bytes();
}

bool are_alike(const ConstTensorView& input, const ConstTensorView& output) {
  return input.shape() == output.shape() && input.dtype() == output.dtype();
}

/// True if refusal() has nothing to say: small calls notice what a text costs, even an empty one.
bool fit(const ConstTensorView& input, const ConstTensorView& output) {
  if (!are_alike(input, output) || !is_usable(input)) return false;
  if (input.bytes() == output.bytes()) return output.device().kind == DeviceKind::cpu;
  return is_usable(output) && are_apart(input, output);
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

/// An average of whole numbers is none.
std::string refusal_of_op(ReduceOp op, DType dtype) {
  if (op != ReduceOp::avg || has_average(dtype)) return {};
  return std::string("avg of ") + to_string(dtype) +
         "; averages are of floating-point types: use sum, or convert first";
}

std::string refusal_of_root(int root, int size) {
  if (root >= 0 && root < size) return {};
  return "root " + std::to_string(root) + " is not a rank; expected 0 to " +
         std::to_string(size - 1);
}

/// For collectives in which one side holds a block per rank.
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

}  // namespace

namespace {

/// Apart from allreduce(), which every small call would pay for.
[[noreturn, gnu::noinline]] void refuse_allreduce(Engine& engine, const ConstTensorView& input,
                                                  const ConstTensorView& output, ReduceOp op) {
  std::string why = refusal(input, output);
  if (why.empty()) why = refusal_of_op(op, input.dtype());
  engine.throw_on_all_ranks(ErrorCode::invalid_argument, "allreduce: " + why);
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

std::vector<std::string> Communicator::algorithms() const {
  const Engine& engine = group_->engine();
  std::vector<std::string> lines = engine.tuning().table(engine.topology());
  for (const auto& known : engine.learner().learnt()) lines.push_back(to_string(known));
  return lines;
}

bool Communicator::is_learning() const { return group_->engine().learner().is_learning(); }

std::string Communicator::learnt_tuning() const {
  std::vector<TuningRow> rows;
  for (const auto& known : group_->engine().learner().learnt()) {
    rows.push_back({local_size(), known});
  }
  return tuning_text(rows, std::to_string(local_size()) + " ranks of host " +
                               group_->topology().hosts[static_cast<std::size_t>(rank())]);
}

std::string Communicator::why_unreadable() const { return group_->why_unreadable(); }

Tensor Communicator::allocate(Shape shape, DType dtype) { return group_->allocate(shape, dtype); }

void Communicator::allreduce(const ConstTensorView& input, const TensorView& output, ReduceOp op) {
  Engine& engine = group_->engine();
  if (!fit(input, output) || (op == ReduceOp::avg && !has_average(input.dtype()))) {
    const bool on_gpu = input.device().kind == DeviceKind::gpu;
    if (on_gpu && input.device() == output.device() && op == ReduceOp::sum) {
      if (gpu_sum_ == nullptr) gpu_sum_ = std::make_shared<gpus::SumOverRanks>(group_);
      return gpu_sum_->allreduce(input, output);
    }
    refuse_allreduce(engine, input, output, op);
  }
  const Segment segment{input.bytes(), output.bytes(), input.count(), input.dtype()};
  const auto describe = [&] {
    return std::string("allreduce (") + to_string(op) + ") of " + to_string(input);
  };
  engine.run({.kind = Kind::allreduce,
              .reduce = op,
              .digest = Digest().add(input.shape(), input.dtype()).value(),
              .segments = {&segment, 1},
              .describe = describe});
}

Pending Communicator::allreduce_async(const ConstTensorView& input, const TensorView& output,
                                      ReduceOp op, const AsyncOptions& options) {
  std::string why = refusal(input, output);
  const auto is_on_gpu = [](const ConstTensorView& one) {
    return one.device().kind == DeviceKind::gpu;
  };
  if (is_on_gpu(input) || is_on_gpu(output)) {
    why = "tensors on a GPU are reduced by allreduce(), which is synchronous";
  }
  if (why.empty()) why = refusal_of_op(op, input.dtype());
  std::string what = std::string("allreduce_async (") + to_string(op) + ") of " + to_string(input);
  return group_->async_reduces().allreduce(input, output, op, options.priority, std::move(what),
                                           std::move(why));
}

void Communicator::broadcast(const TensorView& tensor, int root) {
  Engine& engine = group_->engine();
  std::string why = refusal(tensor);
  if (why.empty()) why = refusal_of_root(root, size());
  if (!why.empty()) engine.throw_on_all_ranks(ErrorCode::invalid_argument, "broadcast: " + why);
  const Segment segment{tensor.bytes(), tensor.bytes(), tensor.count(), tensor.dtype(), root};
  const auto describe = [&] {
    return "broadcast of " + to_string(tensor) + " from rank " + std::to_string(root);
  };
  engine.run({.kind = Kind::broadcast,
              .root = root,
              .digest = Digest().add(tensor.shape(), tensor.dtype()).value(),
              .segments = {&segment, 1},
              .describe = describe});
}

void Communicator::reduce(const ConstTensorView& input, const TensorView& output, int root,
                          ReduceOp op) {
  Engine& engine = group_->engine();
  std::string why = refusal_of_root(root, size());
  if (why.empty()) why = rank() == root ? refusal(input, output) : refusal(input);
  if (why.empty()) why = refusal_of_op(op, input.dtype());
  if (!why.empty()) engine.throw_on_all_ranks(ErrorCode::invalid_argument, "reduce: " + why);
  const Segment segment{input.bytes(), output.bytes(), input.count(),
                        input.dtype(), kEveryRank,     root};
  const auto describe = [&] {
    return std::string("reduce (") + to_string(op) + ") of " + to_string(input) + " to rank " +
           std::to_string(root);
  };
  engine.run({.kind = Kind::reduce,
              .reduce = op,
              .root = root,
              .digest = Digest().add(input.shape(), input.dtype()).value(),
              .segments = {&segment, 1},
              .describe = describe});
}

void Communicator::reduce_scatter(const ConstTensorView& input, const TensorView& output,
                                  ReduceOp op) {
  Engine& engine = group_->engine();
  const auto ranks = static_cast<std::size_t>(size());
  std::string why = refusal_of_blocks(input, output, ranks * output.count() == input.count());
  if (why.empty()) why = refusal_of_op(op, input.dtype());
  if (!why.empty())
    engine.throw_on_all_ranks(ErrorCode::invalid_argument, "reduce_scatter: " + why);
  const std::size_t block = output.size_bytes();
  std::vector<Segment> segments;
  for (int to = 0; to < size(); ++to) {
    segments.push_back({input.bytes() + static_cast<std::size_t>(to) * block, output.bytes(),
                        output.count(), input.dtype(), kEveryRank, to});
  }
  const auto describe = [&] {
    return std::string("reduce_scatter (") + to_string(op) + ") of " + to_string(input);
  };
  engine.run({.kind = Kind::reduce_scatter,
              .reduce = op,
              .digest = Digest().add(input.shape(), input.dtype()).value(),
              .segments = segments,
              .describe = describe});
}

void Communicator::allgather(const ConstTensorView& input, const TensorView& output) {
  Engine& engine = group_->engine();
  const auto ranks = static_cast<std::size_t>(size());
  std::string why = refusal_of_blocks(input, output, ranks * input.count() == output.count());
  if (!why.empty()) engine.throw_on_all_ranks(ErrorCode::invalid_argument, "allgather: " + why);
  const std::vector<Segment> segments = collectives::allgather_segments(
      size(), input.bytes(), output.bytes(), input.count(), input.dtype());
  const auto describe = [&] { return "allgather of " + to_string(input); };
  engine.run({.kind = Kind::allgather,
              .digest = Digest().add(input.shape(), input.dtype()).value(),
              .segments = segments,
              .describe = describe});
}

Statistics Communicator::statistics() const {
  return statistics_of(group_->engine().statistics(), rank());
}

bool Communicator::stop_requested() const noexcept { return group_->engine().stop_requested(); }
void Communicator::request_stop() noexcept { group_->engine().request_stop(); }

void Communicator::barrier() {
  const auto describe = [] { return std::string("barrier"); };
  group_->engine().run({.kind = Kind::barrier, .segments = {}, .describe = describe});
}

void Communicator::agree(const std::function<void()>& body) {
  tutti::agree(group_->engine(), body);
}

}  // namespace tutti
