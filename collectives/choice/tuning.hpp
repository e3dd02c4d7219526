// SPDX-License-Identifier: Apache-2.0
// The one place that chooses an algorithm by the size of a call and the number of ranks and nodes.
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

/// How data of more than the inline size crosses between nodes.
enum class Exchange {
  direct,   ///< every node sends every owner its piece: DirectExchange
  halving,  ///< recursive halving, then doubling: HalvingExchange
  mpi,      ///< MPI_Allreduce between the lanes: MpiExchange. Its order of summation is its own.
};

/// How handshakes, and inline data with them, reach all nodes.
enum class Handshakes {
  direct,   ///< one message to every other node
  doubling  ///< ceil(log2 N) rounds, with sums made on the way
};

const char* name_of(Handshakes handshakes);
const char* name_of(Exchange exchange);

/// What the machine has, in bytes.
struct CacheSizes {
  std::size_t level1;
  std::size_t last_level;
  std::size_t level2 = 0;  ///< of one core; 0: not known
};

/// The choices of one group: equal on all ranks but for `threads`, made once from the layout, the
/// settings and the caches. No choice changes the order of summation, except Exchange::mpi, which
/// is never chosen unless TUTTI_ALGORITHMS asks for it.
struct Tuning {
  static constexpr int kMostPieces = 8;  ///< in a message
  /// The largest sums by halves with the handshakes, of ranks that are alone in their nodes: they
  /// copy nothing into announcements.
  static constexpr std::size_t kMostHalved = std::size_t{4} << 20;

  // In the node.
  std::size_t inline_shared_bytes;   ///< data in arenas travels in the announcement up to this size
  std::size_t inline_private_bytes;  ///< the same for ordinary memory
  int wait_group;  ///< ranks per group in a two-level wait; the node's size means one level
  /// In a node of up to this many ranks, each rank sums inputs in ordinary memory for itself: that
  /// reads more from the cache, but writes no peer's memory. 1 turns it off.
  int own_sum_ranks;
  std::size_t chunk_bytes;  ///< what a node reduces at a time, out of place
  /// Length of a rank's ring of slots, see SlotRing: more than a core's own cache holds.
  std::size_t ring_bytes;
  /// Bytes that a rank stages at a time through its caches, if each sums for itself.
  std::size_t ring_chunk_bytes;
  /// Outputs are written past the caches where the inputs and outputs of the node's ranks are more
  /// than this together.
  std::size_t streamed_output_bytes;
  /// Calls from this size on write what they update for other ranks past the caches: reading a line
  /// that is dirty in the cache of a distant core takes longer than reading one from memory, which
  /// is also read ahead.
  std::size_t streamed_update_bytes;
  /// Calls from this size on write slots past the caches.
  std::size_t streamed_slot_bytes;
  /// A pushpull from this size on writes its outputs at once, which saves reading the result again.
  /// Below it, the result comes from the cache.
  std::size_t direct_output_bytes;

  /// Paths are tried, and the fastest is kept: see Learner.
  bool learns = false;
  /// Every call is a trial until all is known, whatever that costs.
  bool learns_at_once = false;
  /// Every call takes another path, for tests.
  bool paths_in_turn = false;
  /// What TUTTI_ALGORITHMS asks for, where a call allows it.
  std::optional<Inputs> inputs;
  std::optional<Results> results;

  /// Threads of this rank that work on large data, the program's own among them. The same for all
  /// ranks of a host, but not for all hosts.
  int threads = 1;

  // Between nodes.
  Handshakes handshakes;
  Exchange exchange;
  std::size_t chunks_in_flight;  ///< of chunk_bytes each; fewer if messages have several pieces
  int most_pieces = 1;           ///< in a message, a power of two: see Path::pieces
  std::optional<int> pieces;     ///< what TUTTI_ALGORITHMS asks for
  /// Sums of more than the first size, up to the second, are tried both with the handshakes and
  /// after them. Smaller ones go with the handshakes.
  std::size_t inline_untried_bytes = 0;
  std::size_t inline_tried_bytes = 0;
  /// Sums up to the first size, which are larger than those that go whole, go by halves with the
  /// handshakes; up to the second, that is tried. 0: the number of nodes is no power of two, or
  /// nodes do not make sums on the way.
  std::size_t halved_bytes = 0;
  std::size_t halved_tried_bytes = 0;
  std::optional<std::size_t> halved;  ///< what TUTTI_ALGORITHMS asks for
  std::size_t chain_bytes;            ///< broadcasts from this size on go from node to node

  /// Errors  invalid_argument: settings.algorithms names what does not exist or does not fit.
  static Tuning choose(const Topology& topology, const Settings& settings, CacheSizes caches);

  /// The path of a call before anything is learnt; with paths_in_turn, of its `turn`.
  [[nodiscard]] Path path_for(const CallClass& call, std::size_t bytes, int ranks_of_node,
                              bool can_fetch) const;
  /// Whether inputs of so many bytes travel with the handshakes is learnt.
  [[nodiscard]] bool tries_inline(std::size_t bytes) const {
    return bytes > inline_untried_bytes && bytes <= inline_tried_bytes;
  }
  /// Whether sums of so many bytes go by halves with the handshakes is known, or learnt.
  [[nodiscard]] bool may_be_halved(std::size_t bytes) const {
    return bytes > inline_shared_bytes && bytes <= most_halved_bytes();
  }
  [[nodiscard]] std::size_t most_halved_bytes() const {
    return std::max(halved_bytes, halved_tried_bytes);
  }
  /// What a node reduces at a time in a call between nodes, and how many such chunks are under way.
  [[nodiscard]] std::size_t chunk_bytes_of(const Path& path) const {
    return chunk_bytes * path.pieces;
  }
  [[nodiscard]] std::size_t chunks_in_flight_of(const Path& path) const;
  /// Chooses how a path of a node writes slots and outputs in a call of this size.
  void choose_writes(Path& path, std::size_t bytes, int ranks_of_node) const;
  /// How a call writes its outputs: `bytes` is the size of one rank's data.
  [[nodiscard]] WritePolicy output_writes(std::size_t bytes, int ranks_of_node) const;
  /// How a call of this size writes its scratch slots.
  [[nodiscard]] WritePolicy slot_writes(std::size_t bytes) const;
  /// Bytes that a rank stages at a time in a call of this size, if each sums for itself.
  [[nodiscard]] std::size_t staged_bytes(const Path& path, std::size_t bytes) const;
  /// Bytes that a slot has to have room for.
  [[nodiscard]] std::size_t largest_chunk() const {
    return chunk_bytes * static_cast<std::size_t>(most_pieces);
  }

  /// The choices as text, one line each: where, for which data, up to which size, which algorithm.
  [[nodiscard]] std::vector<std::string> table(const Topology& topology) const;
};

/// The scratch that every arena needs per slot under these settings.
std::size_t slot_bytes(const Topology& topology, const Settings& settings);

}  // namespace tutti::collectives
