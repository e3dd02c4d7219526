// SPDX-License-Identifier: Apache-2.0
//
// Blocks lie where the program has them, or in a copy of their own: where a datatype is derived,
// and where MPI_IN_PLACE has the input among the outputs.
#include "runtime/preload/blocks.hpp"

#include <climits>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "runtime/preload/arguments.hpp"
#include "runtime/preload/gpu_memory.hpp"

namespace tutti::preload {

namespace {

using collectives::BlockSegments;
using collectives::kEveryRank;
using collectives::Kind;
using collectives::Segment;

using Copy = std::unique_ptr<std::byte[]>;

/// One call that moves equal blocks.
struct Blocks {
  const Served& served;
  std::size_t bytes;  ///< of a block
  const char* name;
  MPI_Comm comm;

  [[nodiscard]] int ranks() const { return served.group->topology().size; }
  /// See preload::run().
  bool run(Kind kind, int root, std::span<const Segment> segments) const {
    const auto describe = [&] {
      const bool has_root = kind == Kind::gather || kind == Kind::scatter;
      return std::string(name) + " of " + std::to_string(bytes) + " bytes a rank" +
             (has_root ? with_root(root) : "") + " on " + name_of(comm);
    };
    return preload::run(served, {.kind = kind,
                                 .root = root,
                                 .digest = digest_of(bytes, DType::uint8),
                                 .segments = segments,
                                 .describe = describe});
  }
};

/// The conditions for a call of equal blocks: bytes that MPI_Pack can count on every rank.
std::optional<Blocks> blocks_of(const char* name, const Items& block, MPI_Comm comm) {
  Process* running = process();
  const Served* served = block.bytes() ? served_by(*running, comm) : nullptr;
  if (served == nullptr) return std::nullopt;
  const auto ranks = static_cast<std::size_t>(served->group->topology().size);
  if (*block.bytes() * ranks > INT_MAX) return std::nullopt;
  return Blocks{*served, *block.bytes(), name, comm};
}

/// The address of a block among others of the program's.
template <class Memory>
auto* block_at(Memory* buffer, std::ptrdiff_t items, MPI_Datatype type) {
  MPI_Aint least = 0;
  MPI_Aint extent = 0;
  PMPI_Type_get_extent(type, &least, &extent);
  return as_bytes(buffer) + items * extent;
}

/// The bytes of a block in a copy, also where they lie as they are sent.
int copy_of(const Items& block, const void* buffer, MPI_Comm comm, Copy& copy) {
  const std::byte* data = nullptr;
  const int code = block.read(buffer, comm, copy, data);
  if (code != MPI_SUCCESS || !block.are_plain()) return code;
  copy = std::make_unique_for_overwrite<std::byte[]>(*block.bytes());
  if (!is_on_gpu(data)) std::memcpy(copy.get(), data, *block.bytes());
  return MPI_SUCCESS;
}

/// The two sides of a call on this rank, from the program's memory and back to it. A rank without
/// one of them has no items there.
class Sides {
 public:
  explicit Sides(MPI_Comm comm) : comm_(comm) {}
  /// Errors: MPI's code.
  int read(const Items& items, const void* buffer, bool is_among_outputs) {
    if (!is_among_outputs) return items.read(buffer, comm_, input_copy_, input);
    const int code = copy_of(items, buffer, comm_, input_copy_);
    input = input_copy_.get();
    return code;
  }
  void write_to(const Items& items, void* buffer) {
    items_ = &items;
    buffer_ = buffer;
    output = items.target(buffer, output_copy_);
  }
  /// For an output that nobody wants.
  void write_nowhere(std::size_t bytes) {
    output_copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    output = output_copy_.get();
  }
  int write() {
    return items_ == nullptr ? MPI_SUCCESS : items_->write(output_copy_, buffer_, comm_);
  }

  const std::byte* input = nullptr;
  std::byte* output = nullptr;

 private:
  MPI_Comm comm_;
  Copy input_copy_;
  Copy output_copy_;
  const Items* items_ = nullptr;
  void* buffer_ = nullptr;
};

}  // namespace

int allgather(const Source& from, const Target& to, MPI_Comm comm) {
  const auto by_mpi = [&] {
    return PMPI_Allgather(from.buffer, from.count, from.type, to.buffer, to.count, to.type, comm);
  };
  if (process() == nullptr) return by_mpi();
  const auto left = [&] { return carry_out_by_mpi("MPI_Allgather", comm, by_mpi); };
  if (is_refused(to.count, to.type) || to.buffer == MPI_IN_PLACE) return by_mpi();
  const Items block(*process(), to.count, to.type);
  const auto blocks = blocks_of("MPI_Allgather", block, comm);
  if (!blocks) return left();
  const bool in_place = from.buffer == MPI_IN_PLACE;
  const Items given = in_place ? block : Items(*process(), from.count, from.type);
  if (given.bytes() != block.bytes()) return by_mpi();
  const auto own = [&](bool& is_done) {
    return guarded_code(comm, [&] {
      const int rank = blocks->served.rank;
      const Items all(*process(), to.count * blocks->ranks(), to.type);
      Sides sides(comm);
      const void* input = in_place ? block_at(to.buffer, std::ptrdiff_t{rank} * to.count, to.type)
                                   : as_bytes(from.buffer);
      if (const int code = sides.read(given, input, in_place); code != MPI_SUCCESS) return code;
      sides.write_to(all, to.buffer);
      const auto ranks = static_cast<std::size_t>(blocks->ranks());
      BlockSegments segments(rank, sides.input, sides.output, DType::uint8, ranks);
      for (int other = 0; other < blocks->ranks(); ++other) {
        segments.add(other, kEveryRank, blocks->bytes);
      }
      is_done = blocks->run(Kind::allgather, 0, segments.all());
      return is_done ? sides.write() : MPI_SUCCESS;
    });
  };
  return carry_out(blocks->served, Kind::allgather, blocks->bytes, comm, own, by_mpi);
}

namespace {

/// A block from each rank to each, of which `rank` has its own.
std::vector<Segment> every_pair(int ranks, int rank, const std::byte* input, std::byte* output,
                                std::size_t bytes) {
  std::vector<Segment> segments;
  segments.reserve(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks));
  for (int source = 0; source < ranks; ++source) {
    for (int target = 0; target < ranks; ++target) {
      const std::size_t sent = static_cast<std::size_t>(target) * bytes;
      const std::size_t received = static_cast<std::size_t>(source) * bytes;
      segments.push_back({source == rank ? input + sent : nullptr,
                          target == rank ? output + received : nullptr, bytes, DType::uint8, source,
                          target});
    }
  }
  return segments;
}

}  // namespace

int alltoall(const Source& from, const Target& to, MPI_Comm comm) {
  const auto by_mpi = [&] {
    return PMPI_Alltoall(from.buffer, from.count, from.type, to.buffer, to.count, to.type, comm);
  };
  if (process() == nullptr) return by_mpi();
  const auto left = [&] { return carry_out_by_mpi("MPI_Alltoall", comm, by_mpi); };
  if (is_refused(to.count, to.type) || to.buffer == MPI_IN_PLACE) return by_mpi();
  if (from.buffer == MPI_IN_PLACE) return left();  // on all ranks
  const Items block(*process(), to.count, to.type);
  const auto blocks = blocks_of("MPI_Alltoall", block, comm);
  if (!blocks) return left();
  const Items given(*process(), from.count, from.type);
  if (given.bytes() != block.bytes()) return by_mpi();
  const auto own = [&](bool& is_done) {
    return guarded_code(comm, [&] {
      const int rank = blocks->served.rank;
      const Items all_given(*process(), from.count * blocks->ranks(), from.type);
      const Items all(*process(), to.count * blocks->ranks(), to.type);
      Sides sides(comm);
      if (const int code = sides.read(all_given, from.buffer, false); code != MPI_SUCCESS)
        return code;
      sides.write_to(all, to.buffer);
      is_done =
          blocks->run(Kind::alltoall, 0,
                      every_pair(blocks->ranks(), rank, sides.input, sides.output, blocks->bytes));
      return is_done ? sides.write() : MPI_SUCCESS;
    });
  };
  return carry_out(blocks->served, Kind::alltoall, blocks->bytes, comm, own, by_mpi);
}

int gather(const Source& from, const Target& to, int root, MPI_Comm comm) {
  const auto by_mpi = [&] {
    return PMPI_Gather(from.buffer, from.count, from.type, to.buffer, to.count, to.type, root,
                       comm);
  };
  if (process() == nullptr) return by_mpi();
  const auto left = [&] { return carry_out_by_mpi("MPI_Gather", root, comm, by_mpi); };
  const bool in_place = from.buffer == MPI_IN_PLACE;  // on the root alone
  const Items block(*process(), in_place ? to.count : from.count, in_place ? to.type : from.type);
  const auto blocks = blocks_of("MPI_Gather", block, comm);
  if (is_refused(block.count(), block.type())) return by_mpi();
  if (!blocks) return left();
  if (!is_root_of(blocks->served, root)) return by_mpi();
  const bool is_root = blocks->served.rank == root;
  const Items wanted = is_root ? Items(*process(), to.count, to.type) : block;
  if (wanted.bytes() != block.bytes() || (in_place && !is_root)) return by_mpi();
  const auto own = [&](bool& is_done) {
    return guarded_code(comm, [&] {
      std::optional<Items> all;
      if (is_root) all.emplace(*process(), to.count * blocks->ranks(), to.type);
      Sides sides(comm);
      const void* input = in_place ? block_at(to.buffer, std::ptrdiff_t{root} * to.count, to.type)
                                   : as_bytes(from.buffer);
      if (const int code = sides.read(block, input, in_place); code != MPI_SUCCESS) return code;
      if (all) sides.write_to(*all, to.buffer);
      const auto ranks = static_cast<std::size_t>(blocks->ranks());
      BlockSegments segments(blocks->served.rank, sides.input, sides.output, DType::uint8, ranks);
      for (int other = 0; other < blocks->ranks(); ++other)
        segments.add(other, root, blocks->bytes);
      is_done = blocks->run(Kind::gather, root, segments.all());
      return is_done ? sides.write() : MPI_SUCCESS;
    });
  };
  return carry_out(blocks->served, Kind::gather, blocks->bytes, comm, own, by_mpi);
}

int scatter(const Source& from, const Target& to, int root, MPI_Comm comm) {
  const auto by_mpi = [&] {
    return PMPI_Scatter(from.buffer, from.count, from.type, to.buffer, to.count, to.type, root,
                        comm);
  };
  if (process() == nullptr) return by_mpi();
  const auto left = [&] { return carry_out_by_mpi("MPI_Scatter", root, comm, by_mpi); };
  const bool in_place = to.buffer == MPI_IN_PLACE;  // on the root alone
  const Items block(*process(), in_place ? from.count : to.count, in_place ? from.type : to.type);
  const auto blocks = blocks_of("MPI_Scatter", block, comm);
  if (is_refused(block.count(), block.type())) return by_mpi();
  if (!blocks) return left();
  if (!is_root_of(blocks->served, root)) return by_mpi();
  const bool is_root = blocks->served.rank == root;
  const Items given = is_root ? Items(*process(), from.count, from.type) : block;
  if (given.bytes() != block.bytes() || (in_place && !is_root)) return by_mpi();
  const auto own = [&](bool& is_done) {
    return guarded_code(comm, [&] {
      Sides sides(comm);
      if (is_root) {
        const Items all(*process(), from.count * blocks->ranks(), from.type);
        if (const int code = sides.read(all, from.buffer, false); code != MPI_SUCCESS) return code;
      }
      if (in_place) {
        sides.write_nowhere(blocks->bytes);
      } else {
        sides.write_to(block, to.buffer);
      }
      const auto ranks = static_cast<std::size_t>(blocks->ranks());
      BlockSegments segments(blocks->served.rank, sides.input, sides.output, DType::uint8, ranks);
      for (int other = 0; other < blocks->ranks(); ++other)
        segments.add(root, other, blocks->bytes);
      is_done = blocks->run(Kind::scatter, root, segments.all());
      return is_done ? sides.write() : MPI_SUCCESS;
    });
  };
  return carry_out(blocks->served, Kind::scatter, blocks->bytes, comm, own, by_mpi);
}

namespace {

/// What every rank gives for each rank, and the digest of all of it.
struct Counts {
  std::vector<std::size_t> of_ranks;  ///< of the engine's elements
  std::size_t total = 0;
  std::uint64_t digest = 0;

  void add(std::size_t count) {
    of_ranks.push_back(count);
    total += count;
    digest = (digest ^ count) * 0x9E3779B97F4A7C15U;
  }
};

/// The program's memory: what a rank gives, or MPI_IN_PLACE, and where its result goes.
struct InAndOut {
  const void* in;
  void* out;
};

/// A reduce_scatter whose blocks are `counts`.
int reduce_blocks(const Served& served, const Reduction& taken, const Counts& counts,
                  const InAndOut& memory, MPI_Comm comm, bool& is_done) {
  return guarded(comm, [&] {
    Copy copy;
    const std::byte* from = as_bytes(memory.in);
    if (memory.in == MPI_IN_PLACE) {
      const std::size_t bytes = counts.total * size_of(taken.element);
      copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
      if (!is_on_gpu(memory.out)) std::memcpy(copy.get(), memory.out, bytes);
      from = copy.get();
    }
    const std::size_t ranks = counts.of_ranks.size();
    BlockSegments segments(served.rank, from, as_bytes(memory.out), taken.element, ranks);
    for (std::size_t to = 0; to < ranks; ++to) {
      segments.add(kEveryRank, static_cast<int>(to), counts.of_ranks[to]);
    }
    const auto describe = [&] {
      return "MPI_Reduce_scatter of " + std::to_string(counts.total) + " elements (" +
             to_string(taken.op) + ") on " + name_of(comm);
    };
    is_done = run(served, {.kind = Kind::reduce_scatter,
                           .reduce = taken.op,
                           .digest = counts.digest ^ digest_of(counts.total, taken.element),
                           .segments = segments.all(),
                           .describe = describe});
  });
}

/// Carries out such a call by `reduce`, or where that may be chosen by the faster of the two.
template <class Reduce, class ByMpi>
int carry_out_blocks(const Served& served, const Reduction& taken, std::size_t count, MPI_Comm comm,
                     Reduce reduce, ByMpi by_mpi) {
  const std::size_t bytes = count * size_of(taken.element);
  if (taken.has_an_order()) {
    return carry_out(served, Kind::reduce_scatter, bytes, reduce, by_mpi);
  }
  return carry_out(served, Kind::reduce_scatter, bytes, comm, reduce, by_mpi);
}

}  // namespace

int reduce_scatter(const void* input, const TargetOfMany& to, MPI_Op op, MPI_Comm comm) {
  const auto by_mpi = [&] {
    return PMPI_Reduce_scatter(input, to.buffer, to.counts, to.type, op, comm);
  };
  const auto left = [&] { return carry_out_by_mpi("MPI_Reduce_scatter", comm, by_mpi); };
  const auto taken =
      process() == nullptr ? std::nullopt : reduction_of(*process(), {1, to.type, op});
  if (!taken) return reduce_by_mpi("MPI_Reduce_scatter", {1, to.type, op}, comm, by_mpi);
  const Served* served = served_by(*process(), comm);
  if (served == nullptr || to.counts == nullptr) return by_mpi();
  Counts counts;
  for (int rank = 0; rank < served->group->topology().size; ++rank) {
    if (to.counts[rank] < 0) return by_mpi();
    counts.add(static_cast<std::size_t>(to.counts[rank]) * taken->count);
  }
  if (counts.total == 0) return left();
  const auto reduce = [&](bool& is_done) {
    return reduce_blocks(*served, *taken, counts, {input, to.buffer}, comm, is_done);
  };
  return carry_out_blocks(*served, *taken, counts.total, comm, reduce, by_mpi);
}

int reduce_scatter_block(const void* input, const Target& to, MPI_Op op, MPI_Comm comm) {
  const auto by_mpi = [&] {
    return PMPI_Reduce_scatter_block(input, to.buffer, to.count, to.type, op, comm);
  };
  const auto taken =
      process() == nullptr ? std::nullopt : reduction_of(*process(), {to.count, to.type, op});
  if (!taken) {
    return reduce_by_mpi("MPI_Reduce_scatter_block", {to.count, to.type, op}, comm, by_mpi);
  }
  const Served* served = served_by(*process(), comm);
  if (served == nullptr) return by_mpi();
  Counts counts;
  for (int rank = 0; rank < served->group->topology().size; ++rank) counts.add(taken->count);
  const auto reduce = [&](bool& is_done) {
    return reduce_blocks(*served, *taken, counts, {input, to.buffer}, comm, is_done);
  };
  return carry_out_blocks(*served, *taken, counts.total, comm, reduce, by_mpi);
}

namespace {

/// The bytes of all ranks' blocks, which each rank may describe by another datatype; none where MPI
/// moves them.
std::optional<Counts> bytes_of(const TargetOfMany& to, MPI_Comm comm) {
  MPI_Count each = 0;
  int ranks = 0;
  if (to.type == MPI_DATATYPE_NULL || to.counts == nullptr || to.places == nullptr) return {};
  if (comm == MPI_COMM_NULL || PMPI_Comm_size(comm, &ranks) != MPI_SUCCESS) return {};
  if (PMPI_Type_size_x(to.type, &each) != MPI_SUCCESS || each < 0) return {};
  MPI_Count total = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    if (to.counts[rank] < 0) return {};
    total += each * to.counts[rank];
  }
  if (total == 0 || total > INT_MAX) return {};
  Counts counts;
  for (int rank = 0; rank < ranks; ++rank) {
    counts.add(static_cast<std::size_t>(each) * static_cast<std::size_t>(to.counts[rank]));
  }
  return counts;
}

int move_blocks(const Served& served, const Counts& counts, const Sides& sides,
                const TargetOfMany& to, MPI_Comm comm, bool& is_done) {
  const bool are_packed = sides.output != nullptr;
  std::vector<Segment> segments;
  segments.reserve(counts.of_ranks.size());
  std::byte* packed = sides.output;
  for (std::size_t rank = 0; rank < counts.of_ranks.size(); ++rank) {
    const bool is_own = static_cast<int>(rank) == served.rank;
    segments.push_back({is_own ? sides.input : nullptr,
                        are_packed ? packed : block_at(to.buffer, to.places[rank], to.type),
                        counts.of_ranks[rank], DType::uint8, static_cast<int>(rank)});
    if (are_packed) packed += counts.of_ranks[rank];
  }
  const auto describe = [&] {
    return "MPI_Allgatherv of " + std::to_string(counts.total) + " bytes on " + name_of(comm);
  };
  is_done = run(served, {.kind = Kind::allgather,
                         .digest = counts.digest,
                         .segments = segments,
                         .describe = describe});
  if (!is_done) return MPI_SUCCESS;
  int at = 0;
  for (std::size_t rank = 0; are_packed && rank < counts.of_ranks.size(); ++rank) {
    if (to.counts[rank] == 0) continue;
    const int code =
        unpack({sides.output, counts.total}, at, block_at(to.buffer, to.places[rank], to.type),
               to.counts[rank], to.type, comm);
    if (code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

}  // namespace

int allgatherv(const Source& from, const TargetOfMany& to, MPI_Comm comm) {
  const auto by_mpi = [&] {
    return PMPI_Allgatherv(from.buffer, from.count, from.type, to.buffer, to.counts, to.places,
                           to.type, comm);
  };
  const auto left = [&] { return carry_out_by_mpi("MPI_Allgatherv", comm, by_mpi); };
  const auto counts = process() == nullptr ? std::nullopt : bytes_of(to, comm);
  const Served* served = counts ? served_by(*process(), comm) : nullptr;
  if (served == nullptr) return left();
  const auto rank = static_cast<std::size_t>(served->rank);
  const bool in_place = from.buffer == MPI_IN_PLACE;
  const Items given = in_place ? Items(*process(), to.counts[rank], to.type)
                               : Items(*process(), from.count, from.type);
  if (given.bytes().value_or(0) != counts->of_ranks[rank]) return by_mpi();
  const auto own = [&](bool& is_done) {
    return guarded_code(comm, [&] {
      Sides sides(comm);
      const void* input =
          in_place ? block_at(to.buffer, to.places[rank], to.type) : as_bytes(from.buffer);
      int code = MPI_SUCCESS;
      if (given.bytes()) code = sides.read(given, input, in_place);
      if (code != MPI_SUCCESS) return code;
      if (process()->datatypes.find(to.type) == nullptr) sides.write_nowhere(counts->total);
      return move_blocks(*served, *counts, sides, to, comm, is_done);
    });
  };
  return carry_out(*served, Kind::allgather, counts->total, comm, own, by_mpi);
}

}  // namespace tutti::preload
