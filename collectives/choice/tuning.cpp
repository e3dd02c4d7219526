// SPDX-License-Identifier: Apache-2.0
#include "collectives/choice/tuning.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "collectives/choice/overrides.hpp"
#include "collectives/choice/route.hpp"
#include "collectives/job/names.hpp"
#include "collectives/job/operation.hpp"
#include "collectives/job/tree.hpp"
#include "collectives/job/workers.hpp"
#include "collectives/wait/node_memory.hpp"
#include "collectives/wait/slot_ring.hpp"

namespace tutti::collectives {

namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kLargestSlot = 16 * kKiB * kKiB;
// Between distant cores a call in place takes two waits, which last as long as reading about 1 KiB
// of payload lines.
constexpr std::size_t kInlineShared = 1 * kKiB;
// The most bytes of payloads that a rank reads; beyond that, slots are faster.
constexpr std::size_t kPayloadsRead = kInlineInNode;
// Limits on the bytes of handshakes with payloads that a node receives in all rounds, and on those
// of its own ranks that its first rank reads. Two nodes exchange everything in one message each,
// which saves a round and costs nothing. Among more nodes, inputs that are sent to all at once are
// more bytes than pieces would be. Whether the saved round makes up for them depends on the
// network, and is learnt.
constexpr std::size_t kHandshakesReceived = 256 * kKiB;
constexpr std::size_t kHandshakesReceivedDirect = 112 * kKiB;
constexpr std::size_t kHandshakesTried = 1024 * kKiB;
constexpr std::size_t kInline = 32 * kKiB;
constexpr std::size_t kInlineDirect = 16 * kKiB;
constexpr std::size_t kPayloadsReadByFirst = 64 * kKiB;
constexpr std::size_t kPayloadsReadTried = 256 * kKiB;
// The largest size of a message, and of a scratch slot, for any number of pieces.
constexpr std::size_t kMostPiecesBytes = 2 * kKiB * kKiB;
// Number of pieces of 32 KiB in flight on every link: half a megabyte fills 1 Gb/s with 4 ms of
// delay.
constexpr std::size_t kChunksInFlight = 16;
// There are fewer if a rank's shares of them exceed this: among hundreds of nodes even a few are
// more than a link holds, and each needs a buffer for outgoing data, incoming data, and results.
constexpr std::size_t kMostInFlight = 32 * kKiB * kKiB;
// A ring has twice the size of a core's own cache, within these limits: by the time a line is
// written again, it has left the cache of the core that read it. All rings together leave half of
// the last-level cache.
constexpr std::size_t kLeastRing = 2048 * kKiB;
constexpr std::size_t kMostRing = 4096 * kKiB;
constexpr std::size_t kRingChunk = 32 * kKiB;
// Calls of more than this number of chunks have chunks of up to twice that size.
constexpr std::size_t kRingChunks = 16;
// Up to this size of a call, writes to such a ring find their lines in the last-level cache.
constexpr std::size_t kStreamedRing = 8192 * kKiB;
// Larger calls have larger chunks, because the number of steps of a call is limited.
constexpr std::size_t kMostRingChunks = std::size_t{1} << 16;
constexpr int kLargestFlatWait = 16;
constexpr int kOwnSumRanks = 2;
constexpr std::size_t kDirectOutput = 256 * kKiB;
// A broadcast that is cut into pieces leaves its node only once, instead of once for every other
// node.
constexpr std::size_t kChain = 512 * kKiB;
// The part of the last-level cache that one rank is assumed to have. A larger cache is shared with
// more cores, or with other virtual machines.
constexpr std::size_t kLastLevelPerRank = 16 * kKiB * kKiB;
// Up to so many nodes the direct exchange takes less time than halving, in simulations of two
// networks: 1 MiB in the arena on 32 nodes 0.30 of it, in ordinary memory 0.85 and 0.77.
constexpr int kMostNodesDirect = 32;
// With more nodes, sums that the handshakes can carry by halves go that way before it is learnt.
constexpr int kMostNodesUnhalved = 16;
// With more threads, the threads of a rank wait for memory and for each other.
constexpr int kMostThreads = 8;
constexpr int kMostHandshakesDirect = 7;

constexpr std::size_t in_lines(std::size_t bytes) { return bytes / 64 * 64; }

std::string in_bytes(std::size_t bytes) {
  return bytes % kKiB == 0 && bytes > 0 ? std::to_string(bytes / kKiB) + " KiB"
                                        : std::to_string(bytes) + " B";
}

/// Describes how sums travel by halves; precedes the text on larger sums.
std::string halves_of(const Tuning& tuning) {
  if (tuning.most_halved_bytes() == 0) return "";
  const bool is_learnt = tuning.halved_tried_bytes > tuning.halved_bytes;
  const std::string tried = is_learnt ? in_bytes(tuning.halved_tried_bytes) : "";
  const std::string way = " by halves with the handshakes";
  if (tuning.halved_bytes == 0) return "sums of up to " + tried + way + ", if learnt; ";
  return "sums of up to " + in_bytes(tuning.halved_bytes) + way +
         (is_learnt ? ", up to " + tried + " if learnt; " : "; ");
}

/// Describes the routes of calls, by the bytes of a rank's data.
std::string routes_of(const Tuning& tuning, const Topology& topology) {
  std::string text = "routes: ";
  const auto up_to = [&](Route route, std::size_t bytes, const char* and_so_on) {
    text += std::string(name_of(route)) + " up to " + in_bytes(bytes) + and_so_on;
  };
  constexpr const char* kIfSo = " if the path says so, ";
  const bool is_one_node = topology.num_nodes() == 1;
  const bool is_tried = !is_one_node && tuning.inline_tried_bytes > tuning.inline_untried_bytes;
  if (is_one_node) up_to(Route::tiny, std::min(kTinyBytes, tuning.inline_shared_bytes), ", ");
  up_to(Route::small, is_tried ? tuning.inline_untried_bytes : tuning.inline_shared_bytes, ", ");
  if (topology.size == 1) return text + "then " + name_of(Route::alone);
  if (is_one_node) up_to(Route::announced, kInlineInNode, kIfSo);
  if (is_tried) up_to(Route::announced, tuning.inline_tried_bytes, kIfSo);
  if (tuning.most_halved_bytes() > 0) up_to(Route::halved, tuning.most_halved_bytes(), kIfSo);
  return text + "then " + name_of(Route::by_path);
}

}  // namespace

const char* name_of(Handshakes handshakes) {
  return handshakes == Handshakes::direct ? "direct" : "doubling";
}

const char* name_of(Exchange exchange) {
  constexpr const char* kNames[] = {"direct", "halving", "mpi"};
  return name_in<Exchange::mpi>(kNames, exchange);
}

std::size_t slot_bytes(const Topology& topology, const Settings& settings) {
  if (topology.num_nodes() == 1) return settings.chunk_bytes;
  const auto pieces = static_cast<std::size_t>(topology.num_lanes()) *
                      static_cast<std::size_t>(topology.num_nodes());
  return std::min(pieces * settings.piece_bytes, kLargestSlot);
}

namespace {

/// Returns how many times its own data a node receives in the handshakes of a call, at most.
std::size_t payloads_received(int nodes, Handshakes handshakes, bool sums_on_the_way) {
  const auto others = static_cast<std::size_t>(nodes);
  if (handshakes == Handshakes::direct || !sums_on_the_way) return others;
  return static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(nodes - 1)));
}

/// Returns the largest payload if a node receives `received` of them.
std::size_t most_between_nodes(Handshakes handshakes, std::size_t received) {
  if (received <= 2) return kInlineBytes / 2;
  return handshakes == Handshakes::direct
             ? std::min(kInlineDirect, in_lines(kHandshakesReceivedDirect / received))
             : std::min(kInline, in_lines(kHandshakesReceived / received));
}

/// Returns the ring's length. It is 0, for the minimum that slots need, if the caches are not
/// known.
std::size_t usual_ring(const CacheSizes& caches, int ranks, const Settings& settings) {
  if (caches.level2 == 0) return 0;
  std::size_t ring = std::clamp(2 * caches.level2, kLeastRing, kMostRing);
  ring = std::min(ring, caches.last_level / 2 / static_cast<std::size_t>(ranks));
  return settings.arena_bytes == 0 ? ring : std::min(ring, settings.arena_bytes / 8);
}

/// Returns the largest number of pieces to try; 1 if the user has chosen the size of messages.
int pieces_to_try(const Tuning& tuning, const Settings& settings) {
  const bool may_vary = tuning.learns && settings.piece_bytes == Settings().piece_bytes;
  int most = 1;
  if (!may_vary && !tuning.paths_in_turn) return most;
  for (std::size_t bytes = 2 * tuning.chunk_bytes;
       bytes <= kMostPiecesBytes && most < Tuning::kMostPieces; bytes *= 2) {
    most *= 2;
  }
  return most;
}

/// Returns the largest payload if the first rank of the largest node reads at most `most_read`
/// bytes. A rank that is alone reads its own input.
std::size_t payload_read_by_first(const Topology& topology, std::size_t most_read) {
  const std::size_t most_ranks = topology.largest_node();
  if (most_ranks == 1) return kInlineBytes;
  return std::max(kInlineInNode, in_lines(most_read / most_ranks));
}

/// Derives what follows from all choices, including those of the settings. Between nodes the inline
/// size is the same for any memory. Errors: invalid_argument for an exchange that is not possible.
void settle_between_nodes(Tuning& tuning, const Settings& settings, bool in_tree_of_nodes) {
  tuning.most_pieces = tuning.pieces.value_or(pieces_to_try(tuning, settings));
  tuning.inline_shared_bytes = std::min(tuning.inline_shared_bytes, tuning.inline_private_bytes);
  tuning.inline_private_bytes = tuning.inline_shared_bytes;
  const bool is_learnt = tuning.learns || tuning.paths_in_turn;
  if (!is_learnt || tuning.exchange == Exchange::mpi) tuning.inline_tried_bytes = 0;
  if (tuning.exchange == Exchange::halving && !in_tree_of_nodes) {
    throw_unexpected("exchange=halving",
                     "direct: with TUTTI_REPRODUCIBLE=1 the order of summation in this "
                     "layout is not by nodes");
  }
  if (tuning.exchange == Exchange::mpi && settings.reproducible) {
    throw_unexpected(
        "exchange=mpi",
        "direct or halving: with TUTTI_REPRODUCIBLE=1 the order of summation is not MPI's");
  }
}

/// Sets the sizes of sums by halves, after settle_between_nodes(). Each node owns a piece, so the
/// number of nodes must be a power of two.
void settle_halved(Tuning& tuning, const Topology& topology) {
  const int nodes = topology.num_nodes();
  const bool can_be = tuning.handshakes == Handshakes::doubling &&
                      std::has_single_bit(static_cast<unsigned>(nodes));
  if (!can_be) return;
  const std::size_t most = topology.largest_node() == 1
                               ? Tuning::kMostHalved
                               : payload_read_by_first(topology, kPayloadsReadTried);
  const bool is_chosen = tuning.halved || nodes > kMostNodesUnhalved;
  const bool is_learnt = tuning.learns || tuning.paths_in_turn;
  // Larger sums go in chunks, so that one is summed while another travels.
  const std::size_t usual = std::min(most, tuning.chunk_bytes);
  if (is_chosen) tuning.halved_bytes = std::min(most, tuning.halved.value_or(usual));
  if (is_learnt) tuning.halved_tried_bytes = std::min(most, tuning.halved.value_or(most));
}

}  // namespace

Tuning Tuning::choose(const Topology& topology, const Settings& settings, CacheSizes caches) {
  const int nodes = topology.num_nodes();
  const int local = topology.local_size();
  const bool in_tree_of_nodes = plan_for(topology.nodes, settings.reproducible).is_tree_of_nodes();
  const auto peers = static_cast<std::size_t>(std::max(1, local - 1));
  Tuning tuning;
  tuning.inline_shared_bytes = kInlineShared;
  tuning.inline_private_bytes = std::max(kInlineShared, in_lines(kPayloadsRead / peers));
  tuning.handshakes = nodes <= kMostHandshakesDirect ? Handshakes::direct : Handshakes::doubling;
  if (nodes > 1) {  // the first rank of a node needs the inputs at once, wherever they lie
    Tuning asked = tuning;
    override_choices(asked, settings.algorithms);
    const std::size_t received = payloads_received(nodes, asked.handshakes, in_tree_of_nodes);
    tuning.inline_shared_bytes = std::min(most_between_nodes(asked.handshakes, received),
                                          payload_read_by_first(topology, kPayloadsReadByFirst));
    tuning.inline_private_bytes = tuning.inline_shared_bytes;
    tuning.inline_untried_bytes = std::min(kInlineInNode, tuning.inline_shared_bytes);
    tuning.inline_tried_bytes = std::min({kInlineBytes, in_lines(kHandshakesTried / received),
                                          payload_read_by_first(topology, kPayloadsReadTried)});
  }
  tuning.wait_group = local <= kLargestFlatWait
                          ? local
                          : static_cast<int>(std::ceil(std::sqrt(static_cast<double>(local))));
  tuning.own_sum_ranks = kOwnSumRanks;
  tuning.streamed_output_bytes =
      std::min(caches.last_level, static_cast<std::size_t>(local) * kLastLevelPerRank);
  tuning.streamed_update_bytes = caches.level1 / 2;
  tuning.streamed_slot_bytes = caches.level2 > 0 ? kStreamedRing : caches.level1 / 2;
  tuning.direct_output_bytes = kDirectOutput;
  tuning.threads = settings.threads > 0 ? settings.threads
                                        : std::clamp(topology.cores_per_rank, 1, kMostThreads);
  tuning.chunk_bytes = slot_bytes(topology, settings);
  // Then all ranks that share a chunk have the same number of threads.
  if (nodes == 1 && local > 1) {
    tuning.chunk_bytes =
        std::min(tuning.chunk_bytes * static_cast<std::size_t>(tuning.threads), kLargestSlot);
  }
  tuning.ring_bytes = usual_ring(caches, local, settings);
  tuning.swaps_slots = nodes == 1 && local == 2;
  tuning.ring_chunk_bytes = kRingChunk;
  tuning.chain_bytes = kChain;
  tuning.exchange =
      nodes <= kMostNodesDirect || !in_tree_of_nodes ? Exchange::direct : Exchange::halving;
  const std::size_t share = tuning.chunk_bytes / static_cast<std::size_t>(topology.num_lanes());
  tuning.chunks_in_flight =
      std::clamp(kMostInFlight / std::max<std::size_t>(share, 1), std::size_t{2}, kChunksInFlight);
  tuning.learns_at_once = settings.tuning == "at-once";
  tuning.learns = settings.tuning == "learn" || tuning.learns_at_once;
  override_choices(tuning, settings.algorithms);
  if (nodes > 1) settle_between_nodes(tuning, settings, in_tree_of_nodes);
  if (nodes > 1 && in_tree_of_nodes) settle_halved(tuning, topology);
  tuning.ring_bytes = std::max(tuning.ring_bytes, SlotRing::least_bytes(tuning.largest_chunk()));
  return tuning;
}

Path Tuning::path_for(const CallClass& call, std::size_t bytes, int ranks_of_node,
                      bool can_fetch) const {
  Path first;
  if (call.between_nodes) {
    if (call.may_be_inline && bytes <= inline_shared_bytes) return kWithHandshakes;
    if (call.may_be_halved && bytes <= halved_bytes) return collectives::kHalved;
    first.pieces = static_cast<std::uint8_t>(pieces.value_or(1));
    return first;
  }
  const std::size_t announced = call.inputs == Location::shared     ? inline_shared_bytes
                                : call.inputs == Location::ordinary ? inline_private_bytes
                                                                    : 0;
  if (bytes <= announced && !inputs) {
    first = {.inputs = Inputs::announced, .results = Results::own};
  } else if (moves_blocks(call.kind) && can_fetch && call.inputs != Location::shared) {
    // One copy, without work of the owner.
    first = {.inputs = Inputs::fetched, .results = Results::own};
  } else if (ranks_of_node <= own_sum_ranks && call.inputs == Location::ordinary) {
    first.results = Results::own;
  }
  const auto possible = possible_paths(call, ranks_of_node, can_fetch);
  const auto fits = [&](const Path& path) {
    return path.inputs == inputs.value_or(first.inputs) &&
           path.results == results.value_or(first.results);
  };
  const auto asked = std::find_if(possible.begin(), possible.end(), fits);
  if (asked != possible.end()) first = *asked;
  choose_writes(first, bytes, ranks_of_node);
  return first;
}

void Tuning::choose_writes(Path& path, std::size_t bytes, int ranks_of_node) const {
  path.slots = path.inputs == Inputs::swapped ? WritePolicy::cached : slot_writes(bytes);
  path.outputs = output_writes(bytes, ranks_of_node);
  if (path.results != Results::updated) return;
  path.outputs = bytes < streamed_update_bytes ? WritePolicy::cached : WritePolicy::streaming;
}

/// Returns the number for as many bytes as with one piece, but at least two, so that one chunk is
/// summed while another travels.
std::size_t Tuning::chunks_in_flight_of(const Path& path) const {
  const std::size_t fewest = std::min<std::size_t>(chunks_in_flight, 2);
  return std::max(chunks_in_flight / path.pieces, fewest);
}

WritePolicy Tuning::output_writes(std::size_t bytes, int ranks_of_node) const {
  const std::size_t footprint = 2 * bytes * static_cast<std::size_t>(ranks_of_node);
  return footprint > streamed_output_bytes ? WritePolicy::streaming : WritePolicy::cached;
}

WritePolicy Tuning::slot_writes(std::size_t bytes) const {
  return bytes < streamed_slot_bytes ? WritePolicy::cached : WritePolicy::streaming;
}

/// Writes past the caches use full chunks, and so do calls in which the threads of a rank work
/// together, unless the slots are swapped.
std::size_t Tuning::staged_bytes(const Path& path, std::size_t bytes) const {
  if (path.inputs == Inputs::swapped) {
    const std::size_t wanted = std::max(ring_chunk_bytes, in_lines(bytes / kMostRingChunks));
    return std::min({wanted, chunk_bytes, SlotRing::kMostSwapped});
  }
  const bool is_split = threads > 1 && bytes >= kSplitBytes;
  if (path.slots == WritePolicy::streaming || is_split) return chunk_bytes;
  const std::size_t least = std::max(ring_chunk_bytes, in_lines(bytes / kMostRingChunks));
  const std::size_t wanted = std::clamp(in_lines(bytes / kRingChunks), least, 2 * least);
  return std::min(wanted, chunk_bytes);
}

std::vector<std::string> Tuning::table(const Topology& topology) const {
  const int local = topology.local_size();
  const int nodes = topology.num_nodes();
  const std::string in_node = "in the node (" + std::to_string(local) + " ranks): ";
  std::vector<std::string> rows;
  if (nodes == 1) {
    rows = {in_node + "the store's memory: up to " + in_bytes(inline_shared_bytes) +
                " inline, then direct",
            in_node + "ordinary memory: up to " + in_bytes(inline_private_bytes) +
                " inline, then in chunks of " + in_bytes(chunk_bytes) +
                (local > 1 && local <= own_sum_ranks ? ", each rank sums for itself" : "")};
  } else {
    const std::string between = "between " + std::to_string(nodes) + " nodes: ";
    const bool is_learnt = inline_tried_bytes > inline_untried_bytes;
    rows = {between + "up to " + in_bytes(inline_shared_bytes) + " with the handshakes (" +
                name_of(handshakes) + ")" +
                (is_learnt ? "; for sums of " + in_bytes(inline_untried_bytes) + " to " +
                                 in_bytes(inline_tried_bytes) + " that is learnt"
                           : ""),
            between + "larger: " + halves_of(*this) + "exchange " + name_of(exchange) +
                ", in chunks of " + in_bytes(chunk_bytes) + ", " +
                std::to_string(chunks_in_flight) + " in flight" +
                (most_pieces == 1 ? ""
                 : pieces         ? ", in messages of " + std::to_string(*pieces) + " pieces"
                          : ", in messages of up to " + std::to_string(most_pieces) + " pieces"),
            between + "broadcasts: to all nodes at once, from " + in_bytes(chain_bytes) +
                " from node to node"};
  }
  rows.push_back(routes_of(*this, topology));
  rows.push_back(in_node + "past the caches: scratch from " + in_bytes(streamed_slot_bytes) +
                 ", outputs if all data is above " + in_bytes(streamed_output_bytes));
  rows.push_back(in_node + "pushpull writes its outputs at once from " +
                 in_bytes(direct_output_bytes));
  rows.push_back(in_node + (wait_group >= local
                                ? "flat waits"
                                : "two-level waits, in groups of " + std::to_string(wait_group)));
  rows.push_back("in a rank: " + (threads == 1 ? "one thread"
                                               : std::to_string(threads) + " threads from " +
                                                     in_bytes(kSplitBytes)));
  return rows;
}

}  // namespace tutti::collectives
