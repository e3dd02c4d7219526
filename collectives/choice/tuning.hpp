// SPDX-License-Identifier: Apache-2.0
// Tuning: chooses algorithms by the size of a call and the number of ranks and nodes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tutti/settings.hpp"

#include "collectives/choice/path.hpp"
#include "collectives/job/topology.hpp"
#include "collectives/kernels/reduce.hpp"
#include "collectives/wait/node_memory.hpp"

namespace tutti::collectives {

/// The algorithm by which data of more than the inline size crosses between nodes.
enum class Exchange {
  direct,   ///< every node sends every owner its piece: DirectExchange
  halving,  ///< recursive halving, then doubling: HalvingExchange
  mpi,      ///< MPI_Allreduce between the lanes: MpiExchange. Uses MPI's order of summation.
};

/// The way in which handshakes, and inline data with them, reach all nodes.
enum class Handshakes {
  direct,   ///< one message to every other node
  doubling  ///< ceil(log2 N) rounds, with sums made on the way
};

const char* name_of(Handshakes handshakes);
const char* name_of(Exchange exchange);

/// Sizes of the machine's caches, in bytes.
struct CacheSizes {
  std::size_t level1;
  std::size_t last_level;
  std::size_t level2 = 0;  ///< of one core; 0 if not known
};

/// The choices of one group, made once from the layout, the settings and the caches. They are equal
/// on all ranks, except for `threads`. No choice changes the order of summation, except
/// Exchange::mpi, which is only chosen if TUTTI_ALGORITHMS asks for it.
struct Tuning {
  static constexpr int kMostPieces = 8;  ///< pieces in a message
  /// The largest sums by halves with the handshakes, for ranks that are alone in their nodes and
  /// copy nothing into announcements.
  static constexpr std::size_t kMostHalved = std::size_t{4} << 20;

  // Choices within a node:
  std::size_t inline_shared_bytes;   ///< largest data in arenas that travels in the announcement
  std::size_t inline_private_bytes;  ///< largest data in ordinary memory that does so
  int wait_group;  ///< ranks per group of a two-level wait; the size of the node means one level
  /// In nodes of up to this many ranks, each rank sums inputs in ordinary memory for itself: it
  /// reads more from the cache, but writes no peer's memory. 1 turns this off.
  int own_sum_ranks;
  std::size_t chunk_bytes;  ///< bytes that a node reduces at a time, unless in place
  /// Length of a rank's ring of slots, see SlotRing: more than a core's own cache holds.
  std::size_t ring_bytes;
  /// Two ranks have other slots behind these rings, which they swap.
  bool swaps_slots;
  /// Bytes that a rank stages at a time through its caches, if each sums for itself.
  std::size_t ring_chunk_bytes;
  /// Outputs are written past the caches if the inputs and outputs of all ranks of the node
  /// together exceed this.
  std::size_t streamed_output_bytes;
  /// Calls from this size on write the arrays that they update for other ranks past the caches:
  /// reading a dirty line from the cache of a distant core takes longer than reading it from
  /// memory, where it is also prefetched.
  std::size_t streamed_update_bytes;
  /// Calls from this size on write slots past the caches.
  std::size_t streamed_slot_bytes;
  /// A pushpull from this size on writes its outputs at once, which saves reading the result again.
  /// Below it, the result is read from the cache.
  std::size_t direct_output_bytes;

  /// Paths are tried, and the fastest is kept: see Learner.
  bool learns = false;
  /// Trials are made regardless of their cost until all classes are settled.
  bool learns_at_once = false;
  /// Every call takes another path, for tests.
  bool paths_in_turn = false;
  /// Set by TUTTI_ALGORITHMS, and used where a call allows it.
  std::optional<Inputs> inputs;
  std::optional<Results> results;

  /// Number of threads of this rank that work on large data, including the program's own. It is the
  /// same for all ranks of a host, but may differ between hosts.
  int threads = 1;

  // Choices between nodes:
  Handshakes handshakes;
  Exchange exchange;
  std::size_t chunks_in_flight;  ///< of chunk_bytes each; fewer if messages have several pieces
  int most_pieces = 1;           ///< the most pieces in a message, a power of two; see Path::pieces
  std::optional<int> pieces;     ///< set by TUTTI_ALGORITHMS
  /// Sums above the first size, up to the second, are tried both in the handshakes and after them.
  /// Smaller ones travel in the handshakes.
  std::size_t inline_untried_bytes = 0;
  std::size_t inline_tried_bytes = 0;
  /// Sums that are too large to travel whole, up to the first size, travel by halves in the
  /// handshakes; up to the second, that is tried. 0 if the number of nodes is no power of two, or
  /// if nodes do not sum on the way.
  std::size_t halved_bytes = 0;
  std::size_t halved_tried_bytes = 0;
  std::optional<std::size_t> halved;  ///< set by TUTTI_ALGORITHMS
  std::size_t chain_bytes;            ///< broadcasts from this size on go from node to node

  /// Errors: invalid_argument if settings.algorithms has unknown names or values that do not fit.
  static Tuning choose(const Topology& topology, const Settings& settings, CacheSizes caches);

  /// True if some payloads in a node are larger than kInlineInNode, which TUTTI_ALGORITHMS may ask
  /// for.
  [[nodiscard]] bool has_wide_payloads() const {
    return std::max(inline_shared_bytes, inline_private_bytes) > kInlineInNode;
  }
  /// Returns the path of a call before anything is learnt.
  [[nodiscard]] Path path_for(const CallClass& call, std::size_t bytes, int ranks_of_node,
                              bool can_fetch) const;
  /// True if it is learnt whether inputs of this size travel in the handshakes.
  [[nodiscard]] bool tries_inline(std::size_t bytes) const {
    return bytes > inline_untried_bytes && bytes <= inline_tried_bytes;
  }
  /// True if sums of this size travel, or may be learnt to travel, by halves in the handshakes.
  [[nodiscard]] bool may_be_halved(std::size_t bytes) const {
    return bytes > inline_shared_bytes && bytes <= most_halved_bytes();
  }
  [[nodiscard]] std::size_t most_halved_bytes() const {
    return std::max(halved_bytes, halved_tried_bytes);
  }
  /// Returns what a node reduces at a time in a call between nodes. chunks_in_flight_of() returns
  /// how many such chunks are under way.
  [[nodiscard]] std::size_t chunk_bytes_of(const Path& path) const {
    return chunk_bytes * path.pieces;
  }
  [[nodiscard]] std::size_t chunks_in_flight_of(const Path& path) const;
  /// Chooses how a path through a node writes slots and outputs in a call of this size.
  void choose_writes(Path& path, std::size_t bytes, int ranks_of_node) const;
  /// Returns how a call writes its outputs; `bytes` is the size of one rank's data.
  [[nodiscard]] WritePolicy output_writes(std::size_t bytes, int ranks_of_node) const;
  /// Returns how a call of this size writes its scratch slots.
  [[nodiscard]] WritePolicy slot_writes(std::size_t bytes) const;
  /// Returns the bytes that a rank stages at a time in a call of this size, if each sums for
  /// itself.
  [[nodiscard]] std::size_t staged_bytes(const Path& path, std::size_t bytes) const;
  /// Returns the size of the largest slot.
  [[nodiscard]] std::size_t largest_chunk() const {
    return chunk_bytes * static_cast<std::size_t>(most_pieces);
  }

  /// Returns the choices as text, one line each: place, data, size and algorithm.
  [[nodiscard]] std::vector<std::string> table(const Topology& topology) const;
};

/// Returns the scratch that every arena needs per slot under these settings.
std::size_t slot_bytes(const Topology& topology, const Settings& settings);

}  // namespace tutti::collectives
