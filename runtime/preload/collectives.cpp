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

#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "collectives/engine/engine.hpp"
#include "runtime/preload/process.hpp"

namespace tutti::preload {

namespace {

using collectives::kEveryRank;
using collectives::Kind;
using collectives::Segment;

std::string name_of(MPI_Comm comm) {
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  PMPI_Comm_get_name(comm, name, &length);
  return length == 0 ? "a communicator without a name" : name;
}

std::string name_of(MPI_Datatype type) {
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  PMPI_Type_get_name(type, name, &length);
  return length == 0 ? "a derived datatype" : name;
}

/// A call in words, for errors. Statistics know it by the engine's name.
std::string words(const char* function, int count, MPI_Datatype type, MPI_Comm comm) {
  return std::string(function) + " of " + std::to_string(count) + " " + name_of(type) + " on " +
         name_of(comm);
}

/// All elements of a call that reduces, if the engine can.
struct Reduction {
  std::size_t count;  ///< of the engine's elements
  DType element;
  ReduceOp op;
};

std::optional<Reduction> reduction_of(const Process& process, int count, MPI_Datatype type,
                                      MPI_Op op) {
  const Item* item = process.datatypes.find(type);
  if (item == nullptr || count <= 0) return std::nullopt;
  const std::optional<ReduceOp> known = reduce_op(op, *item);
  if (!known) return std::nullopt;
  const std::size_t each = item->bytes / size_of(item->element);
  return Reduction{static_cast<std::size_t>(count) * each, item->element, *known};
}

/// What ranks compare beside the kind of call, the operation and the root. Below 2^56 elements,
/// calls of other counts or types have other digests.
std::uint64_t digest_of(std::size_t count, DType element) {
  return static_cast<std::uint64_t>(count) << 8 | static_cast<std::uint64_t>(element);
}

const std::byte* as_bytes(const void* memory) { return static_cast<const std::byte*>(memory); }
std::byte* as_bytes(void* memory) { return static_cast<std::byte*>(memory); }

/// The group of a communicator, if it has one. Collective in the first call for it; a rank on which
/// MPI fails in the middle of that ends the job.
const Served* served_by(Process& process, MPI_Comm comm) noexcept {
  if (comm == MPI_COMM_NULL) return nullptr;
  try {
    return process.groups.find(comm);
  } catch (const std::exception& error) {
    end_job(error, "the group of " + name_of(comm));
  }
}

}  // namespace

int barrier(MPI_Comm comm) {
  Process* process = preload::process();
  const Served* served = process == nullptr ? nullptr : served_by(*process, comm);
  if (served == nullptr) return PMPI_Barrier(comm);
  return guarded(comm, [&] {
    const auto describe = [&] { return "MPI_Barrier on " + name_of(comm); };
    served->group->engine().run({.kind = Kind::barrier, .segments = {}, .describe = describe});
  });
}

int allreduce(const void* input, void* output, int count, MPI_Datatype type, MPI_Op op,
              MPI_Comm comm) {
  Process* process = preload::process();
  const auto taken = process == nullptr ? std::nullopt : reduction_of(*process, count, type, op);
  const Served* served = taken ? served_by(*process, comm) : nullptr;
  const bool is_valid = input != nullptr && output != nullptr && output != MPI_IN_PLACE;
  if (served == nullptr || !is_valid) return PMPI_Allreduce(input, output, count, type, op, comm);
  return guarded(comm, [&] {
    const void* from = input == MPI_IN_PLACE ? output : input;
    const Segment segment{as_bytes(from), as_bytes(output), taken->count, taken->element};
    const auto describe = [&] { return words("MPI_Allreduce", count, type, comm); };
    served->group->engine().run({.kind = Kind::allreduce,
                                 .reduce = taken->op,
                                 .digest = digest_of(taken->count, taken->element),
                                 .segments = {&segment, 1},
                                 .describe = describe});
  });
}

int reduce(const void* input, void* output, int count, MPI_Datatype type, MPI_Op op, int root,
           MPI_Comm comm) {
  Process* process = preload::process();
  const auto taken = process == nullptr ? std::nullopt : reduction_of(*process, count, type, op);
  const Served* served = taken ? served_by(*process, comm) : nullptr;
  bool is_valid =
      served != nullptr && input != nullptr && root >= 0 && root < served->group->topology().size;
  const bool is_root = is_valid && served->rank == root;
  if (is_root) is_valid = output != nullptr && output != MPI_IN_PLACE;
  if (is_valid && !is_root) is_valid = input != MPI_IN_PLACE;
  if (!is_valid) return PMPI_Reduce(input, output, count, type, op, root, comm);
  return guarded(comm, [&] {
    const void* from = input == MPI_IN_PLACE ? output : input;
    const Segment segment{as_bytes(from), is_root ? as_bytes(output) : nullptr,
                          taken->count,   taken->element,
                          kEveryRank,     root};
    const auto describe = [&] { return words("MPI_Reduce", count, type, comm); };
    served->group->engine().run({.kind = Kind::reduce,
                                 .reduce = taken->op,
                                 .root = root,
                                 .digest = digest_of(taken->count, taken->element),
                                 .segments = {&segment, 1},
                                 .describe = describe});
  });
}

namespace {

/// The bytes that a broadcast moves, as every rank's own datatype says; none where MPI moves them.
std::optional<std::size_t> bytes_of(const Item* item, int count, MPI_Datatype type) {
  if (count <= 0 || type == MPI_DATATYPE_NULL) return std::nullopt;
  MPI_Count each = 0;
  if (item != nullptr) {
    each = static_cast<MPI_Count>(item->bytes);
  } else if (PMPI_Type_size_x(type, &each) != MPI_SUCCESS || each <= 0) {
    return std::nullopt;
  }
  if (each > INT_MAX / count) return std::nullopt;  // what MPI_Pack can count
  return static_cast<std::size_t>(each) * static_cast<std::size_t>(count);
}

void broadcast(const Served& served, std::byte* data, std::size_t bytes, int root,
               collectives::FunctionRef<std::string()> describe) {
  const Segment segment{data, data, bytes, DType::uint8, root};
  served.group->engine().run(
      {.kind = Kind::broadcast, .root = root, .segments = {&segment, 1}, .describe = describe});
}

}  // namespace

int bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  Process* process = preload::process();
  if (process == nullptr) return PMPI_Bcast(buffer, count, type, root, comm);
  const Item* item = process->datatypes.find(type);
  const std::optional<std::size_t> bytes = bytes_of(item, count, type);
  const Served* served = bytes ? served_by(*process, comm) : nullptr;
  bool is_valid = served != nullptr && root >= 0 && root < served->group->topology().size;
  if (item != nullptr) is_valid = is_valid && buffer != nullptr;
  if (!is_valid) return PMPI_Bcast(buffer, count, type, root, comm);
  const auto describe = [&] { return words("MPI_Bcast", count, type, comm); };
  if (item != nullptr) {
    return guarded(comm, [&] { broadcast(*served, as_bytes(buffer), *bytes, root, describe); });
  }
  // MPI refuses a datatype that is not committed here, before other ranks wait for this one.
  const int all = static_cast<int>(*bytes);
  const bool is_root = served->rank == root;
  int code = MPI_SUCCESS;
  const int raised = guarded(comm, [&] {
    const auto packed = std::make_unique_for_overwrite<std::byte[]>(*bytes);
    int at = 0;
    if (is_root) code = PMPI_Pack(buffer, count, type, packed.get(), all, &at, comm);
    if (code != MPI_SUCCESS) return;
    broadcast(*served, packed.get(), *bytes, root, describe);
    if (!is_root) code = PMPI_Unpack(packed.get(), all, &at, buffer, count, type, comm);
  });
  return raised != MPI_SUCCESS ? raised : code;
}

}  // namespace tutti::preload
