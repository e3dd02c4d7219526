// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/block_calls.hpp"

#include <memory>
#include <string>
#include <vector>

#include "apps/benchmark/backends.hpp"

namespace apps::benchmark {
namespace {

template <class T>
void add(const std::byte* from, std::byte* to, std::size_t count) {
  const T* const addends = reinterpret_cast<const T*>(from);
  T* const sums = reinterpret_cast<T*>(to);
  for (std::size_t i = 0; i < count; ++i) {
    // A 16-bit floating-point number: no integers of 16 bits are measured.
    if constexpr (sizeof(T) == 2) {
      sums[i] = T(static_cast<float>(sums[i]) + static_cast<float>(addends[i]));
    } else {
      sums[i] = static_cast<T>(sums[i] + addends[i]);
    }
  }
}

/// The program's own operation, which both libraries call.
void add(tutti::DType dtype, const std::byte* from, std::byte* to, std::size_t count) {
  tutti::visit(dtype, [&]<class T>(T) { add<T>(from, to, count); });
}

tutti::UserOp sum_of_program() {
  return {.name = "sum of the benchmark",
          .combine =
              [](const tutti::TensorView& left, const tutti::ConstTensorView& right) {
                add(left.dtype(), right.bytes(), left.bytes(), left.count());
              },
          .elementwise = true,
          .pure = true};
}

template <tutti::DType kType>
void add_for_mpi(void* from, void* to, int* count, MPI_Datatype*) {
  add(kType, static_cast<const std::byte*>(from), static_cast<std::byte*>(to),
      static_cast<std::size_t>(*count));
}

MPI_User_function* function_for_mpi(tutti::DType dtype) {
  using tutti::DType;
  switch (dtype) {
    case DType::float16:
      return add_for_mpi<DType::float16>;
    case DType::bfloat16:
      return add_for_mpi<DType::bfloat16>;
    case DType::float32:
      return add_for_mpi<DType::float32>;
    case DType::float64:
      return add_for_mpi<DType::float64>;
    case DType::int8:
      return add_for_mpi<DType::int8>;
    case DType::uint8:
      return add_for_mpi<DType::uint8>;
    case DType::int32:
      return add_for_mpi<DType::int32>;
    case DType::int64:
      return add_for_mpi<DType::int64>;
  }
  return nullptr;
}

Call mpi_user_allreduce(tutti::DType dtype, MPI_Datatype type, MPI_Comm comm) {
  MPI_Op op = MPI_OP_NULL;  // lives as long as the program
  check_mpi(MPI_Op_create(function_for_mpi(dtype), /*commute=*/1, &op), "MPI_Op_create");
  return [=](CallBuffers& slot) {
    check_mpi(MPI_Allreduce(slot.inputs[0].bytes(), slot.outputs[0].bytes(),
                            count_of(slot.inputs[0]), type, op, comm),
              "MPI_Allreduce");
  };
}

Call mpi_sendrecv(int rank, int ranks, MPI_Datatype type, MPI_Comm comm) {
  const int partner = partner_of(rank, ranks);
  if (partner < 0) return [](CallBuffers&) {};
  const auto send = [=](CallBuffers& slot) {
    check_mpi(MPI_Send(slot.inputs[0].bytes(), count_of(slot.inputs[0]), type, partner, 1, comm),
              "MPI_Send");
  };
  const auto receive = [=](CallBuffers& slot) {
    check_mpi(MPI_Recv(slot.outputs[0].bytes(), count_of(slot.outputs[0]), type, partner, 1, comm,
                       MPI_STATUS_IGNORE),
              "MPI_Recv");
  };
  return [=](CallBuffers& slot) {
    if (rank < partner) send(slot);
    receive(slot);
    if (rank > partner) send(slot);
  };
}

/// Counts and offsets of equal blocks for a call of MPI. Made at the first call, not in each.
struct MpiBlocks {
  std::vector<int> counts;
  std::vector<int> begins;
  void set(int ranks, int block) {
    if (!counts.empty() && counts.front() == block) return;
    counts.assign(static_cast<std::size_t>(ranks), block);
    begins.clear();
    for (int rank = 0; rank < ranks; ++rank) begins.push_back(rank * block);
  }
};

/// Counts of equal blocks for a call of the library. Made at the first call, not in each.
struct Counts {
  std::vector<std::size_t> all;
  const std::vector<std::size_t>& of(std::size_t ranks, std::size_t block) {
    if (all.empty() || all.front() != block) all.assign(ranks, block);
    return all;
  }
};

Call mpi_call_with_counts(const std::string& name, int ranks, MPI_Datatype type, MPI_Comm comm) {
  return [=, is_alltoall = name == "alltoallv", blocks = MpiBlocks()](CallBuffers& slot) mutable {
    blocks.set(ranks, count_of(slot.outputs[0]) / ranks);
    if (is_alltoall) {
      check_mpi(MPI_Alltoallv(slot.inputs[0].bytes(), blocks.counts.data(), blocks.begins.data(),
                              type, slot.outputs[0].bytes(), blocks.counts.data(),
                              blocks.begins.data(), type, comm),
                "MPI_Alltoallv");
    } else {
      check_mpi(MPI_Allgatherv(slot.inputs[0].bytes(), blocks.counts.front(), type,
                               slot.outputs[0].bytes(), blocks.counts.data(), blocks.begins.data(),
                               type, comm),
                "MPI_Allgatherv");
    }
  };
}

}  // namespace

bool is_block_call(const Case& chosen) {
  const std::string name = chosen.name;
  return name == "gather" || name == "scatter" || name == "alltoall" || name == "alltoallv" ||
         name == "allgatherv" || name == "sendrecv" || name == "user_allreduce";
}

Call tutti_block_call(const Job& job, const tutti::Communicator& communicator) {
  const std::string name = job.chosen.name;
  auto world = communicator;
  if (name == "gather") {
    return [world, root = job.root](CallBuffers& slot) mutable {
      world.gather(slot.inputs[0], slot.outputs[0], root);
    };
  }
  if (name == "scatter") {
    return [world, root = job.root](CallBuffers& slot) mutable {
      world.scatter(slot.inputs[0], slot.outputs[0], root);
    };
  }
  if (name == "alltoall") {
    return [world](CallBuffers& slot) mutable { world.alltoall(slot.inputs[0], slot.outputs[0]); };
  }
  if (name == "user_allreduce") {
    return [world, op = sum_of_program()](CallBuffers& slot) mutable {
      world.allreduce(slot.inputs[0], slot.outputs[0], op);
    };
  }
  const auto ranks = static_cast<std::size_t>(job.ranks);
  if (name == "alltoallv") {
    return [world, ranks, blocks = Counts()](CallBuffers& slot) mutable {
      const auto& counts = blocks.of(ranks, slot.inputs[0].count() / ranks);
      world.alltoallv(slot.inputs[0], counts, slot.outputs[0], counts);
    };
  }
  if (name == "allgatherv") {
    return [world, ranks, blocks = Counts()](CallBuffers& slot) mutable {
      const auto& counts = blocks.of(ranks, slot.inputs[0].count());
      world.allgatherv(slot.inputs[0], slot.outputs[0], counts);
    };
  }
  const int partner = partner_of(job.rank, job.ranks);
  if (partner < 0) return [](CallBuffers&) {};
  return [world, partner, sends_first = job.rank < partner](CallBuffers& slot) mutable {
    if (sends_first) world.send(slot.inputs[0], partner);
    world.receive(slot.outputs[0], partner);
    if (!sends_first) world.send(slot.inputs[0], partner);
  };
}

Call mpi_block_call(const Job& job, MPI_Datatype type, MPI_Comm comm) {
  const std::string name = job.chosen.name;
  if (name == "user_allreduce") return mpi_user_allreduce(job.pattern.dtype(), type, comm);
  if (name == "sendrecv") return mpi_sendrecv(job.rank, job.ranks, type, comm);
  if (name == "alltoallv" || name == "allgatherv") {
    return mpi_call_with_counts(name, job.ranks, type, comm);
  }
  const int ranks = job.ranks;
  const int root = job.root;
  if (name == "gather") {
    return [=](CallBuffers& slot) {
      const int count = count_of(slot.inputs[0]);
      check_mpi(MPI_Gather(slot.inputs[0].bytes(), count, type, slot.outputs[0].bytes(), count,
                           type, root, comm),
                "MPI_Gather");
    };
  }
  if (name == "scatter") {
    return [=](CallBuffers& slot) {
      const int count = count_of(slot.outputs[0]);
      check_mpi(MPI_Scatter(slot.inputs[0].bytes(), count, type, slot.outputs[0].bytes(), count,
                            type, root, comm),
                "MPI_Scatter");
    };
  }
  return [=](CallBuffers& slot) {
    const int block = count_of(slot.inputs[0]) / ranks;
    check_mpi(MPI_Alltoall(slot.inputs[0].bytes(), block, type, slot.outputs[0].bytes(), block,
                           type, comm),
              "MPI_Alltoall");
  };
}

}  // namespace apps::benchmark
