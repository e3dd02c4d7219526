// SPDX-License-Identifier: Apache-2.0
#include "tutti/c/blocks.h"

#include <algorithm>
#include <vector>

#include "runtime/c_api/arguments.hpp"
#include "runtime/c_api/handles.hpp"

using namespace tutti::c_api;  // NOLINT: the functions below are their C interface
using tutti::Communicator;
using tutti::ConstTensorView;
using tutti::ReduceOp;
using tutti::TensorView;
using tutti::UserOp;

namespace {

using Counts = std::vector<std::size_t>;

/// The tensors of a call, and its counts, if it has some.
struct BlockArguments {
  TensorView input;
  TensorView output;
  Counts input_counts{};
  Counts output_counts{};
};

Counts read_counts(const Place& here, const char* name, const Communicator& ranks,
                   const int64_t* counts) {
  const int64_t* const list = &required(here, name, counts);
  Counts all;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (list[rank] < 0) {
      throw_invalid_argument({&here, name, rank}, "at least 0", std::to_string(list[rank]));
    }
    all.push_back(static_cast<std::size_t>(list[rank]));
  }
  return all;
}

/// The input or output of a call. A side that this rank does not have may be NULL.
TensorView read_side(const Place& here, const char* name, const tutti_tensor* tensor, bool has) {
  if (!has) return {nullptr, {0}, tutti::DType::int8};
  return read_tensor(here, name, tensor);
}

UserOp read_user_op(const Place& here, const tutti_user_op* op) {
  const tutti_user_op& given = required(here, "op", op);
  const Place place{&here, "op"};
  const std::string name = &required(place, "name", given.name);
  if (given.combine == nullptr) throw_invalid_argument({&place, "combine"}, "a function", "NULL");
  if (given.elementwise != 0 && given.elementwise != 1) {
    throw_invalid_argument({&place, "elementwise"}, "0 or 1", std::to_string(given.elementwise));
  }
  const auto combine = [function = given.combine, user_data = given.user_data](
                           const TensorView& left, const ConstTensorView& right) {
    const tutti_tensor to = to_c(left);
    const tutti_tensor from = to_c(right);
    const int status = function(user_data, &to, &from);
    if (status == 0) return;
    throw tutti::Error(tutti::ErrorCode::user_code,
                       "expected it to return 0, got " + std::to_string(status));
  };
  return {.name = name, .combine = combine, .elementwise = given.elementwise == 1};
}

struct UserReduction {
  TensorView input;
  TensorView output;
  UserOp op;
};

UserReduction read_user_reduction(const Place& here, Communicator& ranks, const tutti_tensor* input,
                                  const tutti_tensor* output, bool has_output,
                                  const tutti_user_op* op) {
  return read_on_all(ranks, [&] {
    return UserReduction{read_tensor(here, "input", input),
                         read_side(here, "output", output, has_output), read_user_op(here, op)};
  });
}

}  // namespace

int tutti_communicator_gather(tutti_communicator* communicator, const tutti_tensor* input,
                              const tutti_tensor* output, int root) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    const BlockArguments given = read_on_all(ranks, [&] {
      return BlockArguments{read_tensor(here, "input", input),
                            read_side(here, "output", output, ranks.rank() == root)};
    });
    ranks.gather(given.input, given.output, root);
  });
}

int tutti_communicator_scatter(tutti_communicator* communicator, const tutti_tensor* input,
                               const tutti_tensor* output, int root) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    const BlockArguments given = read_on_all(ranks, [&] {
      return BlockArguments{read_side(here, "input", input, ranks.rank() == root),
                            read_tensor(here, "output", output)};
    });
    ranks.scatter(given.input, given.output, root);
  });
}

int tutti_communicator_exchange_counts(tutti_communicator* communicator, int64_t count,
                                       int64_t* counts) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    int64_t* const list = read_on_all(ranks, [&] {
      if (count < 0) throw_invalid_argument({&here, "count"}, "at least 0", std::to_string(count));
      return &required(here, "counts", counts);
    });
    const Counts all = ranks.exchange_counts(static_cast<std::size_t>(count));
    std::copy(all.begin(), all.end(), list);
  });
}

int tutti_communicator_allgatherv(tutti_communicator* communicator, const tutti_tensor* input,
                                  const tutti_tensor* output, const int64_t* counts) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    const bool exchanges = counts == nullptr;
    const BlockArguments given = read_on_all(ranks, [&] {
      return BlockArguments{read_tensor(here, "input", input), read_tensor(here, "output", output),
                            exchanges ? Counts() : read_counts(here, "counts", ranks, counts)};
    });
    if (exchanges) return ranks.allgatherv(given.input, given.output);
    ranks.allgatherv(given.input, given.output, given.input_counts);
  });
}

int tutti_communicator_reduce_scatterv(tutti_communicator* communicator, const tutti_tensor* input,
                                       const tutti_tensor* output, const int64_t* counts, int op) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    ReduceOp how = ReduceOp::sum;
    const BlockArguments given = read_on_all(ranks, [&] {
      how = read_op(here, op);
      return BlockArguments{read_tensor(here, "input", input), read_tensor(here, "output", output),
                            read_counts(here, "counts", ranks, counts)};
    });
    ranks.reduce_scatter(given.input, given.output, given.input_counts, how);
  });
}

int tutti_communicator_alltoall(tutti_communicator* communicator, const tutti_tensor* input,
                                const tutti_tensor* output) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    const BlockArguments given = read_on_all(ranks, [&] {
      return BlockArguments{read_tensor(here, "input", input), read_tensor(here, "output", output)};
    });
    ranks.alltoall(given.input, given.output);
  });
}

int tutti_communicator_alltoallv(tutti_communicator* communicator, const tutti_tensor* input,
                                 const int64_t* input_counts, const tutti_tensor* output,
                                 const int64_t* output_counts) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    const BlockArguments given = read_on_all(ranks, [&] {
      return BlockArguments{read_tensor(here, "input", input), read_tensor(here, "output", output),
                            read_counts(here, "input_counts", ranks, input_counts),
                            read_counts(here, "output_counts", ranks, output_counts)};
    });
    ranks.alltoallv(given.input, given.input_counts, given.output, given.output_counts);
  });
}

int tutti_communicator_send(tutti_communicator* communicator, const tutti_tensor* tensor,
                            int to_rank) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    ranks.send(read_tensor(here, "tensor", tensor), to_rank);
  });
}

int tutti_communicator_receive(tutti_communicator* communicator, const tutti_tensor* tensor,
                               int from_rank) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    ranks.receive(read_tensor(here, "tensor", tensor), from_rank);
  });
}

int tutti_communicator_allreduce_by(tutti_communicator* communicator, const tutti_tensor* input,
                                    const tutti_tensor* output, const tutti_user_op* op) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    const UserReduction given = read_user_reduction(here, ranks, input, output, true, op);
    ranks.allreduce(given.input, given.output, given.op);
  });
}

int tutti_communicator_reduce_by(tutti_communicator* communicator, const tutti_tensor* input,
                                 const tutti_tensor* output, int root, const tutti_user_op* op) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    const bool has_output = ranks.rank() == root;
    const UserReduction given = read_user_reduction(here, ranks, input, output, has_output, op);
    ranks.reduce(given.input, given.output, root, given.op);
  });
}

int tutti_communicator_reduce_scatter_by(tutti_communicator* communicator,
                                         const tutti_tensor* input, const tutti_tensor* output,
                                         const tutti_user_op* op) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    const UserReduction given = read_user_reduction(here, ranks, input, output, true, op);
    ranks.reduce_scatter(given.input, given.output, given.op);
  });
}
