// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/backends.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <memory>

#include <tutti/error.hpp>
#include <tutti/gpu.hpp>
#include <tutti/kvstore.hpp>

#include "apps/benchmark/block_calls.hpp"
#include "support/command_line.hpp"

namespace apps::benchmark {

namespace {

using tutti::DType;
using tutti::ReduceOp;

/// Calls of MPI in place of a store's pushpull: a replica of its own for each tensor.
Call pushpull_call(const Job& job, MPI_Datatype type, MPI_Comm comm) {
  auto replicas = std::make_shared<std::vector<tutti::Tensor>>();
  for (const Layout::Pair& pair : job.layout.pairs) {
    replicas->push_back(tutti::Tensor::zeros(pair.output, job.pattern.dtype()));
  }
  return [replicas, type, comm](CallBuffers& slot) {
    for (std::size_t i = 0; i < replicas->size(); ++i) {
      const tutti::TensorView& output = slot.outputs[i];
      std::byte* const replica = (*replicas)[i].bytes();
      check_mpi(
          MPI_Allreduce(slot.inputs[i].bytes(), replica, count_of(output), type, MPI_SUM, comm),
          "MPI_Allreduce");
      std::memcpy(output.bytes(), replica, output.size_bytes());
    }
  };
}

/// Calls of MPI that combine elements.
Call reducing_call(const Job& job, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  const std::string name = job.chosen.name;
  const bool in_place = job.in_place;
  if (name == "allreduce") {
    return [=](CallBuffers& slot) {
      const void* const input = in_place ? MPI_IN_PLACE : slot.inputs[0].bytes();
      check_mpi(
          MPI_Allreduce(input, slot.outputs[0].bytes(), count_of(slot.inputs[0]), type, op, comm),
          "MPI_Allreduce");
    };
  }
  if (name == "reduce_scatter") {
    return [=](CallBuffers& slot) {
      check_mpi(MPI_Reduce_scatter_block(slot.inputs[0].bytes(), slot.outputs[0].bytes(),
                                         count_of(slot.outputs[0]), type, op, comm),
                "MPI_Reduce_scatter_block");
    };
  }
  const int root = job.root;
  const bool is_over_input = in_place && job.rank == root;
  return [=](CallBuffers& slot) {
    const void* const input = is_over_input ? MPI_IN_PLACE : slot.inputs[0].bytes();
    check_mpi(
        MPI_Reduce(input, slot.outputs[0].bytes(), count_of(slot.inputs[0]), type, op, root, comm),
        "MPI_Reduce");
  };
}

template <class T>
void divide(const tutti::TensorView& tensor, int ranks) {
  for (T& value : tensor.values<T>()) value /= static_cast<T>(ranks);
}

/// Calls of MPI for an average, which MPI does not have: a sum, and a division.
Call averaging_call(const Job& job, MPI_Datatype type, MPI_Comm comm) {
  const bool has_result = std::string(job.chosen.name) != "reduce" || job.rank == job.root;
  return [ranks = job.ranks, has_result,
          sum = reducing_call(job, type, MPI_SUM, comm)](CallBuffers& slot) {
    sum(slot);
    if (!has_result) return;
    const tutti::TensorView& output = slot.outputs[0];
    output.dtype() == DType::float64 ? divide<double>(output, ranks) : divide<float>(output, ranks);
  };
}

/// Calls of MPI that move elements, or nothing at all.
Call moving_call(const Job& job, MPI_Datatype type, MPI_Comm comm) {
  const std::string name = job.chosen.name;
  const int root = job.root;
  if (name == "allgather") {
    return [=](CallBuffers& slot) {
      const int count = count_of(slot.inputs[0]);
      check_mpi(MPI_Allgather(slot.inputs[0].bytes(), count, type, slot.outputs[0].bytes(), count,
                              type, comm),
                "MPI_Allgather");
    };
  }
  if (name == "broadcast") {
    return [=](CallBuffers& slot) {
      check_mpi(MPI_Bcast(slot.outputs[0].bytes(), count_of(slot.outputs[0]), type, root, comm),
                "MPI_Bcast");
    };
  }
  return [=](CallBuffers&) { check_mpi(MPI_Barrier(comm), "MPI_Barrier"); };
}

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw tutti::Error(tutti::ErrorCode::communication, std::string(call) + ": " + text.data());
}

void max_over_ranks(MPI_Comm comm, std::span<double> values) {
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE,
                          MPI_MAX, comm),
            "MPI_Allreduce");
}

std::uint64_t sum_over_ranks(MPI_Comm comm, std::uint64_t value) {
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_UINT64_T, MPI_SUM, comm), "MPI_Allreduce");
  return value;
}

std::vector<double> gather(MPI_Comm comm, double value) {
  int ranks = 0;
  check_mpi(MPI_Comm_size(comm, &ranks), "MPI_Comm_size");
  std::vector<double> values(static_cast<std::size_t>(ranks));
  check_mpi(MPI_Allgather(&value, 1, MPI_DOUBLE, values.data(), 1, MPI_DOUBLE, comm),
            "MPI_Allgather");
  return values;
}

std::string text_of_rank(MPI_Comm comm, std::string text, int root) {
  auto length = static_cast<int>(text.size());
  check_mpi(MPI_Bcast(&length, 1, MPI_INT, root, comm), "MPI_Bcast");
  text.resize(static_cast<std::size_t>(length));
  check_mpi(MPI_Bcast(text.data(), length, MPI_CHAR, root, comm), "MPI_Bcast");
  return text;
}

bool mpi_can_run(const Case& chosen, DType dtype) {
  return !chosen.reduces || (dtype != DType::float16 && dtype != DType::bfloat16);
}

void check_mpi_counts(const Layout& layout) {
  for (const Layout::Pair& pair : layout.pairs) {
    const std::size_t count = std::max(pair.input.count(), pair.output.count());
    if (count <= INT_MAX) continue;
    throw_usage_error("MPI's calls cannot count " + std::to_string(count) +
                      " elements; use --backend tutti");
  }
}

Call mpi_call(const Job& job, ReduceOp op, MPI_Comm comm) {
  const MPI_Datatype type = tutti::mpi_datatype(job.pattern.dtype());
  const std::string name = job.chosen.name;
  if (name == "pushpull") return pushpull_call(job, type, comm);
  if (is_block_call(job.chosen)) return mpi_block_call(job, type, comm);
  if (op == ReduceOp::avg) return averaging_call(job, type, comm);
  if (job.chosen.reduces) return reducing_call(job, type, tutti::mpi_operation(op), comm);
  return moving_call(job, type, comm);
}

namespace {

Call pushpull_call(const Job& job, const tutti::Compression& compression,
                   const tutti::Communicator& world, tutti::Device device) {
  auto store = std::make_shared<tutti::KVStore>(tutti::KVStore::create(world));
  store->set_gradient_compression(compression);
  std::vector<tutti::Key> keys;
  for (std::size_t i = 0; i < job.layout.pairs.size(); ++i) {
    keys.emplace_back(i);
    store->init(keys.back(),
                tutti::Tensor::zeros(job.layout.pairs[i].output, job.pattern.dtype(), device));
  }
  return [store, keys](CallBuffers& slot) { store->pushpull(keys, slot.inputs, slot.outputs); };
}

/// Calls of Tutti on GPUs, with the work that a call leaves in the device's stream.
Call gpu_call(const Job& job, const Options& options, tutti::Communicator world) {
  const tutti::Device device = tutti::gpu_of(world);
  Call call = [world](CallBuffers& slot) mutable {
    world.allreduce(slot.inputs[0], slot.outputs[0]);
  };
  if (std::string(job.chosen.name) == "pushpull") {
    call = pushpull_call(job, options.compression, world, device);
  }
  return [call, device](CallBuffers& slot) {
    call(slot);
    tutti::synchronize(device);
  };
}

}  // namespace

Call tutti_call(const Job& job, const Options& options, const tutti::Communicator& communicator) {
  if (options.on_gpu) return gpu_call(job, options, communicator);
  const tutti::ReduceOp op = options.op;
  const std::string name = job.chosen.name;
  if (name == "pushpull")
    return pushpull_call(job, options.compression, communicator, tutti::cpu());
  if (is_block_call(job.chosen)) return tutti_block_call(job, communicator);
  auto world = communicator;
  const int root = job.root;
  if (name == "allreduce") {
    return [world, op](CallBuffers& slot) mutable {
      world.allreduce(slot.inputs[0], slot.outputs[0], op);
    };
  }
  if (name == "reduce_scatter") {
    return [world, op](CallBuffers& slot) mutable {
      world.reduce_scatter(slot.inputs[0], slot.outputs[0], op);
    };
  }
  if (name == "allgather") {
    return [world](CallBuffers& slot) mutable { world.allgather(slot.inputs[0], slot.outputs[0]); };
  }
  if (name == "broadcast") {
    return [world, root](CallBuffers& slot) mutable { world.broadcast(slot.outputs[0], root); };
  }
  if (name == "reduce") {
    return [world, op, root](CallBuffers& slot) mutable {
      world.reduce(slot.inputs[0], slot.outputs[0], root, op);
    };
  }
  return [world](CallBuffers&) mutable { world.barrier(); };
}

#if !defined(APPS_WITH_NCCL)  // else backends_nccl.cu defines these
void require_nccl() { throw_usage_error("--backend nccl: this build has no NCCL"); }

std::unique_ptr<NcclWorld> join_nccl(tutti::Communicator&, MPI_Comm,
                                     std::chrono::duration<double>) {
  require_nccl();
  return nullptr;
}
#endif

}  // namespace apps::benchmark
