// SPDX-License-Identifier: Apache-2.0
#include "tutti/c/communicator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/c_api/arguments.hpp"
#include "runtime/c_api/handles.hpp"

using namespace tutti::c_api;  // NOLINT: the functions below are their C interface
using tutti::Communicator;
using tutti::ReduceOp;
using tutti::TensorView;

namespace {

/// The tensors and the operation of a collective call.
struct Reduction {
  TensorView input;
  TensorView output;
  ReduceOp op;
};

Reduction read_reduction(const Place& here, Communicator& ranks, const tutti_tensor* input,
                         const tutti_tensor* output, int op = TUTTI_SUM) {
  return read_on_all(ranks, [&] {
    return Reduction{read_tensor(here, "input", input), read_tensor(here, "output", output),
                     read_op(here, op)};
  });
}

}  // namespace

int tutti_communicator_world(const char* const* settings, tutti_communicator** communicator) {
  return guarded(__func__, [&](const Place& here) {
    tutti_communicator*& created = required(here, "communicator", communicator);
    const tutti::Settings chosen = read_settings(here, settings);
    created = new tutti_communicator{.communicator = Communicator::world(chosen)};
  });
}

int tutti_communicator_self(const char* const* settings, tutti_communicator** communicator) {
  return guarded(__func__, [&](const Place& here) {
    tutti_communicator*& created = required(here, "communicator", communicator);
    const tutti::Settings chosen = read_settings(here, settings);
    created = new tutti_communicator{.communicator = Communicator::self(chosen)};
  });
}

int tutti_communicator_split(tutti_communicator* communicator, int color, int key,
                             tutti_communicator** group) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    const auto place = read_on_all(ranks, [&] { return &required(here, "group", group); });
    *place = new tutti_communicator{.communicator = ranks.split(color, key)};
  });
}

int tutti_communicator_subgroup(tutti_communicator* communicator, const int* members, int count,
                                tutti_communicator** group) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    const auto place = read_on_all(ranks, [&] { return &required(here, "group", group); });
    const auto list = read_on_all(ranks, [&] {
      return read_list({&here, "ranks"}, members, count);
    });
    auto made = ranks.subgroup(list);
    *place = made ? new tutti_communicator{.communicator = std::move(*made)} : nullptr;
  });
}

int tutti_communicator_create_group(tutti_communicator* communicator, const int* members, int count,
                                    tutti_communicator** group) {
  return on_communicator(__func__, communicator, [&](const Place& here, const Communicator& ranks) {
    tutti_communicator*& place = required(here, "group", group);
    const auto list = read_list({&here, "ranks"}, members, count);
    place = new tutti_communicator{.communicator = ranks.create_group(list)};
  });
}

int tutti_communicator_job_rank(const tutti_communicator* communicator, int* rank) {
  return on_communicator(__func__, communicator, [&](const Place& here, const Communicator& ranks) {
    required(here, "rank", rank) = ranks.job_rank();
  });
}

int tutti_communicator_destroy(tutti_communicator* communicator) {
  return guarded(__func__, [&](const Place& here) { destroy(here, "communicator", communicator); });
}

int tutti_communicator_topology(const tutti_communicator* communicator, tutti_topology* topology) {
  return on_communicator(__func__, communicator, [&](const Place& here, const Communicator& ranks) {
    required(here, "topology", topology) = {.rank = ranks.rank(),
                                            .size = ranks.size(),
                                            .node = ranks.node(),
                                            .num_nodes = ranks.num_nodes(),
                                            .local_rank = ranks.local_rank(),
                                            .local_size = ranks.local_size()};
  });
}

int tutti_communicator_algorithms(tutti_communicator* communicator, const char** text) {
  return guarded(__func__, [&](const Place& here) {
    tutti_communicator& handle = open(here, "communicator", communicator);
    const char*& found = required(here, "text", text);
    std::string now;
    for (const std::string& line : handle.communicator.algorithms()) now += line + "\n";
    auto& told = handle.algorithms;
    const auto same = std::ranges::find(told, now);
    found = (same == told.end() ? told.insert(told.end(), std::move(now)) : same)->c_str();
  });
}

int tutti_communicator_allocate(tutti_communicator* communicator, const int64_t* shape, int ndim,
                                int dtype, tutti_buffer** buffer) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    tutti_buffer*& created = required(here, "buffer", buffer);
    const tutti::Shape wanted = read_shape(here, shape, ndim);
    created = new tutti_buffer{.tensor = ranks.allocate(wanted, read_dtype(here, dtype))};
  });
}

int tutti_communicator_allreduce(tutti_communicator* communicator, const tutti_tensor* input,
                                 const tutti_tensor* output, int op) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    const Reduction given = read_reduction(here, ranks, input, output, op);
    ranks.allreduce(given.input, given.output, given.op);
  });
}

int tutti_communicator_reduce(tutti_communicator* communicator, const tutti_tensor* input,
                              const tutti_tensor* output, int root, int op) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    tutti_tensor none{};
    none.dtype = TUTTI_INT8;
    const tutti_tensor* written = ranks.rank() == root ? output : &none;
    const Reduction given = read_reduction(here, ranks, input, written, op);
    ranks.reduce(given.input, given.output, root, given.op);
  });
}

int tutti_communicator_reduce_scatter(tutti_communicator* communicator, const tutti_tensor* input,
                                      const tutti_tensor* output, int op) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    const Reduction given = read_reduction(here, ranks, input, output, op);
    ranks.reduce_scatter(given.input, given.output, given.op);
  });
}

int tutti_communicator_allgather(tutti_communicator* communicator, const tutti_tensor* input,
                                 const tutti_tensor* output) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    const Reduction given = read_reduction(here, ranks, input, output);
    ranks.allgather(given.input, given.output);
  });
}

int tutti_communicator_broadcast(tutti_communicator* communicator, const tutti_tensor* tensor,
                                 int root) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    const TensorView given =
        read_on_all(ranks, [&] { return read_tensor(here, "tensor", tensor); });
    ranks.broadcast(given, root);
  });
}

int tutti_communicator_barrier(tutti_communicator* communicator) {
  return on_communicator(__func__, communicator,
                         [](const Place&, Communicator& ranks) { ranks.barrier(); });
}

int tutti_communicator_agree(tutti_communicator* communicator, int status, const char* text) {
  return on_communicator(__func__, communicator, [&](const Place& here, Communicator& ranks) {
    agree(here, ranks, status, text);
  });
}

int tutti_communicator_stop_requested(const tutti_communicator* communicator, int* requested) {
  return on_communicator(__func__, communicator, [&](const Place& here, const Communicator& ranks) {
    required(here, "requested", requested) = ranks.stop_requested() ? 1 : 0;
  });
}

int tutti_communicator_request_stop(tutti_communicator* communicator) {
  return on_communicator(__func__, communicator,
                         [](const Place&, Communicator& ranks) { ranks.request_stop(); });
}
