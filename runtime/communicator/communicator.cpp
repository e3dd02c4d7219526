// SPDX-License-Identifier: Apache-2.0
#include "tutti/communicator.hpp"

#include <string>
#include <utility>
#include <vector>

#include "tutti/error.hpp"
#include "tutti/mpi_abi.hpp"

#include "collectives/job/names.hpp"
#include "runtime/base/digest.hpp"
#include "runtime/communicator/refusals.hpp"
#include "runtime/gpu_sum/sum_over_ranks.hpp"
#include "runtime/job/agree.hpp"
#include "runtime/job/group.hpp"
#include "runtime/job/subgroup.hpp"
#include "runtime/job/tuning_file.hpp"
#include "runtime/local/threads.hpp"
#include "runtime/mpi/bootstrap.hpp"
#include "runtime/mpi/library.hpp"
#include "runtime/mpi/session.hpp"
#include "runtime/observe/statistics.hpp"

namespace tutti {

using collectives::BlockSegments;
using collectives::Engine;
using collectives::kEveryRank;
using collectives::Kind;
using collectives::Segment;

const char* to_string(ReduceOp op) noexcept {
  constexpr const char* kNames[] = {"sum", "prod", "min", "max", "avg"};
  return collectives::name_in<ReduceOp::avg>(kNames, op);
}

namespace {

/// Makes a job of one rank on a machine without an MPI. Throws if reports are requested, because
/// they are written in MPI_Finalize.
std::shared_ptr<Group> make_lone_group(const Settings& settings) {
  auto group = make_self_group(settings);
  for (const auto& [variable, value] : {std::pair("TUTTI_STATISTICS", &settings.statistics),
                                        std::pair("TUTTI_PROMETHEUS", &settings.prometheus),
                                        std::pair("TUTTI_TRACE", &settings.trace)}) {
    if (value->empty()) continue;
    throw Error(ErrorCode::invalid_argument, std::string(variable) + "=" + *value +
                                                 ": only a job with an MPI writes this; " +
                                                 mpi::why_none());
  }
  group->log().write(LogLevel::info, "a job of one rank, without an MPI: " + mpi::why_none());
  return group;
}

}  // namespace

/// Copies of a communicator share the sum on GPUs, because ranks may use different copies in a
/// call.
Communicator::Communicator(std::shared_ptr<Group> group)
    : group_(std::move(group)), gpu_sum_(std::make_shared<gpus::SumOverRanks>(group_)) {}

Communicator Communicator::world(const Settings& settings) {
  std::shared_ptr<Group> group = mpi::make_world_group(settings);
  return Communicator(group != nullptr ? std::move(group) : make_lone_group(settings));
}

Communicator communicator_from_address(const void* comm, MpiAbi abi, const Settings& settings) {
  const mpi::Calls& calls = mpi::load_or_throw();
  if (!mpi::is_running()) {
    throw Error(ErrorCode::invalid_argument,
                "communicator_from: MPI is not initialised, or is finalised; a communicator of MPI "
                "exists between MPI_Init and MPI_Finalize");
  }
  mpi::ensure_initialized(settings);  // by this process, not by its parent before a fork
  mpi::require_abi(abi, "communicator_from");
  const mpi::Comm given = calls.comm_at(comm);
  const bool is_null = calls.is_null(given);
  bool between = false;
  if (!is_null) {
    const mpi::Turn turn("MPI_Comm_test_inter");
    mpi::check(calls.is_intercommunicator(given, &between), "MPI_Comm_test_inter");
  }
  if (is_null || between) {
    throw Error(ErrorCode::invalid_argument,
                std::string("communicator_from: expected the ranks of one group, got ") +
                    (between ? "an intercommunicator; MPI_Intercomm_merge makes one of it"
                             : "MPI_COMM_NULL, which MPI gives to ranks outside of a group"));
  }
  return Communicator(mpi::make_group(given, settings));
}

Communicator Communicator::self(const Settings& settings) {
  return Communicator(make_self_group(settings));
}

Communicator Communicator::split(int color, int key) const {
  return Communicator(tutti::split(*group_, color, key));
}

std::optional<Communicator> Communicator::subgroup(std::span<const int> ranks) const {
  auto group = make_subgroup(*group_, ranks);
  if (group == nullptr) return std::nullopt;
  return Communicator(std::move(group));
}

Communicator Communicator::create_group(std::span<const int> ranks) const {
  return Communicator(make_group_of_members(*group_, ranks));
}

int Communicator::job_rank() const noexcept { return group_->topology().job_rank(); }
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
    if (is_in_node(known)) rows.push_back({local_size(), known});
  }
  return tuning_text(rows, std::to_string(local_size()) + " ranks of host " +
                               group_->topology().names->host_of(rank()));
}

std::string Communicator::why_unreadable() const { return group_->why_unreadable(); }

Tensor Communicator::allocate(Shape shape, DType dtype) { return group_->allocate(shape, dtype); }

void Communicator::allreduce(const ConstTensorView& input, const TensorView& output, ReduceOp op) {
  Engine& engine = group_->engine();
  if (!fit(input, output) || !fits(op, input.dtype())) {
    const bool on_gpu = input.device().kind == DeviceKind::gpu;
    if (on_gpu && input.device() == output.device() && op == ReduceOp::sum) {
      return gpu_sum_->allreduce(input, output);
    }
    refuse(engine, "allreduce", {refusal(input, output), refusal_of_op(op, input.dtype())});
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

Pending Communicator::refuse_allreduce_async(std::string why, int priority) {
  const TensorView nothing(nullptr, {0}, DType::float32);
  return group_->async_reduces().allreduce(nothing, nothing, ReduceOp::sum, priority,
                                           "allreduce_async of what cannot be read",
                                           std::move(why));
}

void Communicator::broadcast(const TensorView& tensor, int root) {
  Engine& engine = group_->engine();
  if (!is_usable(tensor) || !is_root(root, size())) {
    refuse(engine, "broadcast", {refusal(tensor), refusal_of_root(root, size())});
  }
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
  const bool tensors_fit = rank() == root ? fit(input, output) : is_usable(input);
  if (!is_root(root, size()) || !tensors_fit || !fits(op, input.dtype())) {
    refuse(engine, "reduce",
           {refusal_of_root(root, size()), rank() == root ? refusal(input, output) : refusal(input),
            refusal_of_op(op, input.dtype())});
  }
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
  const bool counts_fit = ranks * output.count() == input.count();
  if (!are_blocks(input, output, counts_fit) || !fits(op, input.dtype())) {
    refuse(engine, "reduce_scatter",
           {refusal_of_blocks(input, output, counts_fit), refusal_of_op(op, input.dtype())});
  }
  BlockSegments segments(rank(), input.bytes(), output.bytes(), input.dtype(), ranks);
  for (int to = 0; to < size(); ++to) segments.add(kEveryRank, to, output.count());
  const auto describe = [&] {
    return std::string("reduce_scatter (") + to_string(op) + ") of " + to_string(input);
  };
  engine.run({.kind = Kind::reduce_scatter,
              .reduce = op,
              .digest = Digest().add(input.shape(), input.dtype()).value(),
              .segments = segments.all(),
              .describe = describe});
}

void Communicator::allgather(const ConstTensorView& input, const TensorView& output) {
  Engine& engine = group_->engine();
  const auto ranks = static_cast<std::size_t>(size());
  const bool counts_fit = ranks * input.count() == output.count();
  if (!are_blocks(input, output, counts_fit)) {
    refuse(engine, "allgather", {refusal_of_blocks(input, output, counts_fit)});
  }
  BlockSegments segments(rank(), input.bytes(), output.bytes(), input.dtype(), ranks);
  for (int from = 0; from < size(); ++from) segments.add(from, kEveryRank, input.count());
  const auto describe = [&] { return "allgather of " + to_string(input); };
  engine.run({.kind = Kind::allgather,
              .digest = Digest().add(input.shape(), input.dtype()).value(),
              .segments = segments.all(),
              .describe = describe});
}

Statistics Communicator::statistics() const { return statistics_of(group_->statistics(), rank()); }

bool Communicator::stop_requested() const { return group_->engine().stop_requested(); }
void Communicator::request_stop() noexcept { group_->request_stop(); }

void Communicator::barrier() {
  const auto describe = [] { return std::string("barrier"); };
  group_->engine().run({.kind = Kind::barrier, .segments = {}, .describe = describe});
}

void Communicator::agree(const std::function<void()>& body) {
  tutti::agree(group_->engine(), body);
}

}  // namespace tutti
