// SPDX-License-Identifier: Apache-2.0
// The ways that data can take through a node, and between nodes. All of them give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/job/operation.hpp"
#include "collectives/kernels/reduce.hpp"

namespace tutti::collectives {

/// How ranks get at each other's inputs. Those in arenas are read where they are, not staged or
/// fetched.
enum class Inputs : std::uint8_t {
  announced,  ///< they travel in the announcements: see reduce_inline()
  staged,     ///< their owner copies them into its stage slots, chunk by chunk
  fetched     ///< the others read them through the kernel: see PeerReader
};

/// Who sums what, and how the results reach their outputs.
enum class Results : std::uint8_t {
  spread,   ///< each rank sums a share, and writes it to all outputs or result slots
  own,      ///< each rank sums all that it wants, for itself
  fetched,  ///< each rank sums a share into its own output, and fetches the other shares
  updated   ///< each rank sums a share, updates it, and writes what it updated to all ranks
};

const char* name_of(Inputs inputs);
const char* name_of(Results results);

/// One way through a node, or between nodes, where there are two choices: whether inputs travel
/// with the handshakes, whole or by halves, and, if not, the number of pieces in a message.
struct Path {
  Inputs inputs = Inputs::staged;
  Results results = Results::spread;
  WritePolicy slots = WritePolicy::cached;
  WritePolicy outputs = WritePolicy::cached;
  std::uint8_t pieces = 1;  ///< of TUTTI_PIECE_BYTES, in a message to another node

  friend bool operator==(const Path&, const Path&) = default;
};

/// Between nodes: the handshakes are all that is sent.
inline constexpr Path kWithHandshakes{.inputs = Inputs::announced, .results = Results::own};
/// The same, but handshakes carry halves of the sums, and each node makes a share.
inline constexpr Path kHalved{.inputs = Inputs::announced, .results = Results::spread};

/// "inputs=fetched results=own slots=cached outputs=streamed". In a node.
std::string to_string(const Path& path);

/// Where all inputs of a node's ranks lie.
enum class Location : std::uint8_t { shared, ordinary, mixed };

/// What calls have in common that take the same path. Made of what every rank of the node knows of
/// a call once all have announced it, so it is the same on all of them. Between nodes that is the
/// kind and the size, which every rank knows before it announces the call.
struct CallClass {
  Kind kind{};
  Location inputs = Location::shared;
  bool in_place = false;        ///< all outputs lie in arenas and are written there
  bool consumed = false;        ///< some rank takes the results piece by piece instead
  bool shares_updates = false;  ///< and a rank may update for all: see Consumer::updated_arrays()
  bool apart = false;           ///< no output, or what is updated instead, is an input
  bool between_nodes = false;
  bool may_be_inline = false;  ///< between nodes: inputs may travel with the handshakes
  bool may_be_halved = false;  ///< between nodes: halves of sums may
  /// The binary logarithm of the bytes of a rank's data, rounded down; between nodes, rounded up.
  std::uint8_t size = 0;

  friend bool operator==(const CallClass&, const CallClass&) = default;
  /// Between nodes: the path says whether inputs travel with the handshakes.
  [[nodiscard]] bool may_be_carried() const { return may_be_inline || may_be_halved; }
  /// True if only the sizes differ.
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

/// What is known of one class: from a file, or learnt.
struct LearntPath {
  CallClass call;
  Path path;
  double margin = 1;  ///< how many times faster than the static choice
};

/// "allreduce of ordinary memory, from 65536 bytes: inputs=fetched ...: 1.31 times the speed of the
/// static choice"; "allreduce between nodes, up to 65536 bytes: with the handshakes: ...".
std::string to_string(const LearntPath& learnt);

/// What the rows of a file can be: how a call goes through a node.
[[nodiscard]] inline bool is_in_node(const LearntPath& known) { return !known.call.between_nodes; }

/// The pairs of inputs and results that a call of this class may take, on a node of several ranks,
/// with cached writes. Small calls may be announced. `can_fetch`: the node's ranks can read each
/// other through the kernel.
std::vector<Path> possible_paths(const CallClass& call, bool can_fetch);

/// True if ranks read inputs of others where they lie: those ranks may not change them meanwhile.
bool reads_where_they_are(const Path& path, const CallClass& call);

/// True if the path writes scratch slots.
bool uses_slots(const Path& path, const CallClass& call);

}  // namespace tutti::collectives
