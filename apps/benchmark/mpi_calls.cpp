// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/mpi_calls.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <memory>

#include <tutti/error.hpp>

#include "support/command_line.hpp"

namespace apps::benchmark {
namespace {

using tutti::DType;
using tutti::ReduceOp;

int count_of(const tutti::ConstTensorView& tensor) { return static_cast<int>(tensor.count()); }

/// What a program does that has MPI and no store: a replica of its own for each tensor.
Call pushpull_call(const Job& job, MPI_Datatype type, MPI_Comm comm) {
  auto replicas = std::make_shared<std::vector<tutti::Tensor>>();
  for (const Layout::Pair& pair : job.layout.pairs) {
    replicas->push_back(tutti::Tensor::zeros(pair.output, job.pattern.dtype()));
  }
  return [replicas, type, comm](Slot& slot) {
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

/// Collectives that combine elements.
Call reducing_call(const std::string& name, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  if (name == "allreduce") {
    return [=](Slot& slot) {
      check_mpi(MPI_Allreduce(slot.inputs[0].bytes(), slot.outputs[0].bytes(),
                              count_of(slot.inputs[0]), type, op, comm),
                "MPI_Allreduce");
    };
  }
  if (name == "reduce_scatter") {
    return [=](Slot& slot) {
      check_mpi(MPI_Reduce_scatter_block(slot.inputs[0].bytes(), slot.outputs[0].bytes(),
                                         count_of(slot.outputs[0]), type, op, comm),
                "MPI_Reduce_scatter_block");
    };
  }
  return [=](Slot& slot) {
    check_mpi(MPI_Reduce(slot.inputs[0].bytes(), slot.outputs[0].bytes(), count_of(slot.inputs[0]),
                         type, op, kRoot, comm),
              "MPI_Reduce");
  };
}

/// Collectives that move elements, or nothing at all.
Call moving_call(const std::string& name, MPI_Datatype type, MPI_Comm comm) {
  if (name == "allgather") {
    return [=](Slot& slot) {
      const int count = count_of(slot.inputs[0]);
      check_mpi(MPI_Allgather(slot.inputs[0].bytes(), count, type, slot.outputs[0].bytes(), count,
                              type, comm),
                "MPI_Allgather");
    };
  }
  if (name == "broadcast") {
    return [=](Slot& slot) {
      check_mpi(MPI_Bcast(slot.outputs[0].bytes(), count_of(slot.outputs[0]), type, kRoot, comm),
                "MPI_Bcast");
    };
  }
  return [=](Slot&) { check_mpi(MPI_Barrier(comm), "MPI_Barrier"); };
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
    throw_bad_option("MPI's calls cannot count " + std::to_string(count) +
                     " elements; use --backend tutti");
  }
}

Call mpi_call(const Job& job, ReduceOp op, MPI_Comm comm) {
  const MPI_Datatype type = tutti::mpi_datatype(job.pattern.dtype());
  const std::string name = job.chosen.name;
  if (name == "pushpull") return pushpull_call(job, type, comm);
  if (job.chosen.reduces) return reducing_call(name, type, tutti::mpi_operation(op), comm);
  return moving_call(name, type, comm);
}

}  // namespace apps::benchmark
