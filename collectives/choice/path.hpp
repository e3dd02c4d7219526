// SPDX-License-Identifier: Apache-2.0
// Path: the ways of data through a node, and between nodes. All of them give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/job/operation.hpp"
#include "collectives/kernels/reduce.hpp"

namespace tutti::collectives {

/// How ranks read each other's inputs. Inputs in arenas are always read where they are, neither
/// staged nor fetched.
enum class Inputs : std::uint8_t {
  announced,  ///< in the announcements, see reduce_inline()
  staged,     ///< from stage slots, to which their owner copies them chunk by chunk
  swapped,    ///< the same, by two ranks that swap their slots, see SlotRing
  fetched     ///< through the kernel, see PeerReader
};

/// Which rank sums what, and how the results reach the outputs.
enum class Results : std::uint8_t {
  spread,   ///< each rank sums a share, and writes it to all outputs or result slots
  own,      ///< each rank sums everything that it wants, for itself
  fetched,  ///< each rank sums a share into its own output, and fetches the other shares
  updated   ///< each rank sums a share, updates it, and writes the updated arrays to all ranks
};

const char* name_of(Inputs inputs);
const char* name_of(Results results);

/// One way through a node, or between nodes. Between nodes there are two choices: whether inputs
/// travel with the handshakes, whole or by halves, and if not, the number of pieces in a message.
struct Path {
  Inputs inputs = Inputs::staged;
  Results results = Results::spread;
  WritePolicy slots = WritePolicy::cached;
  WritePolicy outputs = WritePolicy::cached;
  std::uint8_t pieces = 1;  ///< in units of TUTTI_PIECE_BYTES, in a message to another node

  friend bool operator==(const Path&, const Path&) = default;
};

/// Between nodes: all data travels in the handshakes.
inline constexpr Path kWithHandshakes{.inputs = Inputs::announced, .results = Results::own};
/// Between nodes: handshakes carry halves of the sums, and each node sums a share.
inline constexpr Path kHalved{.inputs = Inputs::announced, .results = Results::spread};

/// Describes a path in a node, such as "inputs=fetched results=own slots=cached outputs=streamed".
std::string to_string(const Path& path);

/// The memory in which the inputs of all ranks of a node lie.
enum class Location : std::uint8_t { shared, ordinary, mixed };

/// The properties of a call that determine its path. In a node they are known once all ranks have
/// announced the call, and are the same on all of them. Between nodes they are the kind and the
/// size, which every rank knows before it announces the call.
struct CallClass {
  Kind kind{};
  Location inputs = Location::shared;
  bool in_place = false;        ///< all outputs lie in arenas and are written there
  bool consumed = false;        ///< some rank has a consumer for the results
  bool shares_updates = false;  ///< one rank can update for all, see Consumer::updated_arrays()
  bool apart = false;           ///< neither an output nor an updated array is an input
  bool between_nodes = false;
  bool may_be_inline = false;  ///< between nodes: inputs may travel in the handshakes
  bool may_be_halved = false;  ///< between nodes: halves of sums may travel there
  /// The binary logarithm of the bytes of a rank's data, rounded down; between nodes rounded up.
  std::uint8_t size = 0;

  friend bool operator==(const CallClass&, const CallClass&) = default;
  /// True if the path decides whether data travels in the handshakes between nodes.
  [[nodiscard]] bool may_be_carried() const { return may_be_inline || may_be_halved; }
  /// True if the classes differ at most in size.
  [[nodiscard]] bool is_like(CallClass other) const {
    other.size = size;
    return *this == other;
  }
  [[nodiscard]] std::uint32_t number() const {
    return static_cast<std::uint32_t>(shares_updates) << 24 |
           static_cast<std::uint32_t>(kind) << 16 | static_cast<std::uint32_t>(inputs) << 13 |
           static_cast<std::uint32_t>(may_be_halved) << 15 |
           static_cast<std::uint32_t>(may_be_inline) << 12 |
           static_cast<std::uint32_t>(between_nodes) << 11 |
           static_cast<std::uint32_t>(in_place) << 10 | static_cast<std::uint32_t>(consumed) << 9 |
           static_cast<std::uint32_t>(apart) << 8 | size;
  }
};

/// The path of one class, from a file or learnt.
struct LearntPath {
  CallClass call;
  Path path;
  double margin = 1;  ///< its speed as a multiple of the static choice's
};

/// Describes a row, such as "allreduce of ordinary memory, from 65536 bytes: inputs=fetched ...:
/// 1.31 times the speed of the static choice" or "allreduce between nodes, up to 65536 bytes: with
/// the handshakes: ...".
std::string to_string(const LearntPath& learnt);

/// True for paths through a node, the only ones that a tuning file can have.
[[nodiscard]] inline bool is_in_node(const LearntPath& known) { return !known.call.between_nodes; }

/// Returns the pairs of inputs and results that a call of this class may take on a node of `ranks`
/// ranks, more than one, with cached writes. Small calls may be announced. `can_fetch`: the ranks
/// of the node can read each other's memory through the kernel.
std::vector<Path> possible_paths(const CallClass& call, int ranks, bool can_fetch);

/// True if ranks read the inputs of others where they lie, so that these must not change meanwhile.
bool reads_where_they_are(const Path& path, const CallClass& call);

/// True if inputs that peers cannot read are copied to slots first.
[[nodiscard]] inline bool is_staged(Inputs inputs) {
  return inputs == Inputs::staged || inputs == Inputs::swapped;
}

/// True if a call by this path writes scratch slots.
bool uses_slots(const Path& path, const CallClass& call);

}  // namespace tutti::collectives
