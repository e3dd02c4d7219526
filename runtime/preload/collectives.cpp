// SPDX-License-Identifier: Apache-2.0
//
// A call is taken if the following lets it, which is the same on all ranks of a communicator:
//
//   barrier     the communicator
//   bcast       and the bytes that the root sends: ranks may describe them by different datatypes
//   reduce      and the count, the datatype and the operation, which all ranks give alike
//   allreduce   the same
//
// A call with arguments that MPI refuses is MPI's, so that its errors are those that it has.
#include "runtime/preload/collectives.hpp"

#include <cstddef>
#include <memory>

#include "runtime/preload/arguments.hpp"

namespace tutti::preload {

namespace {

using collectives::kEveryRank;
using collectives::Kind;
using collectives::Segment;

}  // namespace

int barrier(MPI_Comm comm) {
  const auto by_mpi = [&] { return PMPI_Barrier(comm); };
  Process* process = preload::process();
  const Served* served = process == nullptr ? nullptr : served_by(*process, comm);
  if (served == nullptr) return by_mpi();
  const auto own = [&](bool& is_done) {
    return guarded(comm, [&] {
      const auto describe = [&] { return "MPI_Barrier on " + name_of(comm); };
      is_done = run(*served, {.kind = Kind::barrier, .segments = {}, .describe = describe});
    });
  };
  return carry_out(*served, Kind::barrier, 0, comm, own, by_mpi);
}

int allreduce(const void* input, void* output, const Elements& all, MPI_Comm comm) {
  const auto by_mpi = [&] {
    return PMPI_Allreduce(input, output, all.count, all.type, all.op, comm);
  };
  Process* process = preload::process();
  const auto taken = process == nullptr ? std::nullopt : reduction_of(*process, all);
  if (!taken) return reduce_by_mpi("MPI_Allreduce", all, comm, by_mpi);
  const Served* served = served_by(*process, comm);
  const bool is_valid = input != nullptr && output != nullptr && output != MPI_IN_PLACE;
  if (served == nullptr || !is_valid) return by_mpi();
  const auto own = [&](bool& is_done) {
    return guarded(comm, [&] {
      const void* from = input == MPI_IN_PLACE ? output : input;
      const Segment segment{as_bytes(from), as_bytes(output), taken->count, taken->element};
      const auto describe = [&] {
        return words("MPI_Allreduce", all.count, all.type, with(all.op), comm);
      };
      is_done = run(*served, {.kind = Kind::allreduce,
                              .reduce = taken->op,
                              .digest = digest_of(taken->count, taken->element),
                              .segments = {&segment, 1},
                              .describe = describe});
    });
  };
  if (taken->has_an_order()) {
    return carry_out(*served, Kind::allreduce, taken->bytes(), own, by_mpi);
  }
  return carry_out(*served, Kind::allreduce, taken->bytes(), comm, own, by_mpi);
}

int reduce(const void* input, void* output, const Elements& all, int root, MPI_Comm comm) {
  const auto by_mpi = [&] {
    return PMPI_Reduce(input, output, all.count, all.type, all.op, root, comm);
  };
  Process* process = preload::process();
  const auto taken = process == nullptr ? std::nullopt : reduction_of(*process, all);
  if (!taken) return reduce_by_mpi("MPI_Reduce", all, comm, by_mpi, root);
  const Served* served = served_by(*process, comm);
  bool is_valid = served != nullptr && input != nullptr && is_root_of(*served, root);
  const bool is_root = is_valid && served->rank == root;
  if (is_root) is_valid = output != nullptr && output != MPI_IN_PLACE;
  if (is_valid && !is_root) is_valid = input != MPI_IN_PLACE;
  if (!is_valid) return by_mpi();
  const auto own = [&](bool& is_done) {
    return guarded(comm, [&] {
      const void* from = input == MPI_IN_PLACE ? output : input;
      const Segment segment{as_bytes(from), is_root ? as_bytes(output) : nullptr,
                            taken->count,   taken->element,
                            kEveryRank,     root};
      const auto describe = [&] {
        return words("MPI_Reduce", all.count, all.type, with(all.op) + with_root(root), comm);
      };
      is_done = run(*served, {.kind = Kind::reduce,
                              .reduce = taken->op,
                              .root = root,
                              .digest = digest_of(taken->count, taken->element),
                              .segments = {&segment, 1},
                              .describe = describe});
    });
  };
  if (taken->has_an_order()) {
    return carry_out(*served, Kind::reduce, taken->bytes(), own, by_mpi);
  }
  return carry_out(*served, Kind::reduce, taken->bytes(), comm, own, by_mpi);
}

int bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  const auto by_mpi = [&] { return PMPI_Bcast(buffer, count, type, root, comm); };
  Process* process = preload::process();
  if (process == nullptr) return by_mpi();
  const Items items(*process, count, type);
  if (!items.bytes() && !is_refused(count, type)) {
    return carry_out_by_mpi("MPI_Bcast", root, comm, by_mpi);
  }
  const Served* served = items.bytes() ? served_by(*process, comm) : nullptr;
  const bool is_valid =
      served != nullptr && is_root_of(*served, root) && (buffer != nullptr || !items.are_plain());
  if (!is_valid) return by_mpi();
  const bool is_root = served->rank == root;
  const auto own = [&](bool& is_done) {
    return guarded_code(comm, [&] {
      std::unique_ptr<std::byte[]> copy;
      const std::byte* input = nullptr;
      // MPI refuses a datatype that is not committed here, before other ranks wait for this one.
      const int code = is_root ? items.read(buffer, comm, copy, input) : MPI_SUCCESS;
      if (code != MPI_SUCCESS) return code;
      std::byte* data = is_root ? const_cast<std::byte*>(input) : items.target(buffer, copy);
      const Segment segment{data, data, *items.bytes(), DType::uint8, root};
      const auto describe = [&] { return words("MPI_Bcast", count, type, with_root(root), comm); };
      is_done = run(*served, {.kind = Kind::broadcast,
                              .root = root,
                              .digest = digest_of(*items.bytes(), DType::uint8),
                              .segments = {&segment, 1},
                              .describe = describe});
      return is_root || !is_done ? MPI_SUCCESS : items.write(copy, buffer, comm);
    });
  };
  return carry_out(*served, Kind::broadcast, *items.bytes(), comm, own, by_mpi);
}

}  // namespace tutti::preload
