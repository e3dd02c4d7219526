// SPDX-License-Identifier: Apache-2.0
// The one place that chooses: which algorithm carries a call of which size.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/settings.hpp"

#include "collectives/topology.hpp"

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
  doubling  ///< ceil(log2 N) rounds, each passing on all that is known
};

/// What the machine has, in bytes.
struct CacheSizes {
  std::size_t level1;
  std::size_t last_level;
};

/// The choices of one group: equal on all ranks, made once from the layout, the settings and the
/// caches. No choice changes the order of summation, except Exchange::mpi, which is never chosen
/// unless TUTTI_ALGORITHMS asks for it.
struct Tuning {
  // In the node.
  std::size_t inline_shared_bytes;   ///< data in arenas travels in the announcement up to this size
  std::size_t inline_private_bytes;  ///< the same for ordinary memory
  int wait_group;  ///< ranks that wait by one leader in a two-level wait; the node's size: flat
  std::size_t chunk_bytes;      ///< scratch slot; what a node reduces at a time, out of place
  std::size_t streaming_bytes;  ///< a node's data above this goes past the caches
  /// Calls of this size write the scratch slots past the caches: a line that is dirty in the cache
  /// of a distant core takes its reader longer than a line in memory, which is also read ahead.
  std::size_t streamed_slot_bytes;

  // Between nodes.
  Handshakes handshakes;
  Exchange exchange;
  std::size_t chunks_in_flight;

  /// Errors  invalid_argument: settings.algorithms names what does not exist or does not fit.
  static Tuning choose(const Topology& topology, const Settings& settings, CacheSizes caches);

  /// The table in words, a line per row: where, which data, up to which size, which algorithm.
  [[nodiscard]] std::vector<std::string> table(const Topology& topology) const;
};

/// The scratch that every arena needs per slot under these settings.
std::size_t slot_bytes(const Topology& topology, const Settings& settings);

/// Reads the overrides of TUTTI_ALGORITHMS into a tuning: "inline-shared=512,exchange=halving".
/// Errors  invalid_argument, with what is known.
void override_choices(Tuning& tuning, std::string_view overrides);

}  // namespace tutti::collectives
