// SPDX-License-Identifier: Apache-2.0
// The exchange of one lane's share of a chunk between nodes. Each algorithm has a file of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/job/tree.hpp"
#include "collectives/node/call.hpp"
#include "collectives/wait/transport.hpp"

namespace tutti::collectives {

/// Message tags. Messages of one tag between a pair of ranks arrive in order.
enum Tag : int {
  kHandshakeTag = 1,
  kStatementTag = 2,
  kPartialTag = 3,
  kResultTag = 4,
  kMessageTag = 5,  ///< of a message between two ranks: its header, with as much data as fits
  kVerdictTag = 6,  ///< whether count and dtype match
  kPieceTag = 7,    ///< the rest of the data
};

/// Longer data travels in several messages: from 64 KiB on, Open MPI over TCP first asks the
/// receiver whether it waits.
inline constexpr std::size_t kMostAtOnce = std::size_t{60} << 10;

/// A lane: the ranks of all nodes with the same local rank.
struct Lane {
  const Topology& topology;
  const CombinePlan& plan;
  Transport& transport;

  [[nodiscard]] int num_nodes() const { return topology.num_nodes(); }
  [[nodiscard]] int node() const { return topology.node; }
  [[nodiscard]] int rank_on(int node) const { return topology.nodes[node][topology.local_rank]; }
  /// This node's partial sums in the plan: the index of the first one, and their number.
  [[nodiscard]] std::size_t own_first() const { return plan.first_of(node()); }
  [[nodiscard]] std::size_t own_count() const { return plan.count_of(node()); }
};

/// A pending message between ranks of this lane; `node` is the node of the other rank.
struct LaneMessage {
  static constexpr int kAllNodes = -1;  ///< for a collective call of MPI
  int node;
  Transport::Request request;
};

/// One chunk between the nodes. Its buffers do not move while messages refer to them.
struct ChunkInFlight {
  Range chunk;
  Range share;      ///< this lane's share of the chunk
  Sources sources;  ///< the chunk's inputs on this node
  std::vector<std::byte> outgoing;
  std::vector<std::byte> incoming;
  std::vector<std::byte> result;  ///< the share, summed over all nodes
  /// The receives that each stage waits for before its action. All are posted at the start, so that
  /// messages of several chunks match in the order of chunks.
  std::vector<std::vector<LaneMessage>> receives;
  std::vector<LaneMessage> sends;
  std::size_t num_stages = 0;
  std::size_t stage = 0;  ///< the next stage to be done
  bool under_way = false;

  [[nodiscard]] std::byte* result_at(std::size_t position) {
    return result.data() + (position - share.begin);
  }
  /// Resets the flight for another chunk, without stages or messages.
  void clear();
  /// Adds a stage, and returns its list of receives for the caller to fill.
  std::vector<LaneMessage>& add_stage();
};

/// An algorithm is stateless: the state of a chunk is in its ChunkInFlight. Its functions are
/// called in the order of chunks: a chunk does a stage only after all older chunks have done that
/// stage.
class ExchangeAlgorithm {
 public:
  explicit ExchangeAlgorithm(const Lane& lane) : lane_(lane) {}
  virtual ~ExchangeAlgorithm() = default;
  ExchangeAlgorithm(const ExchangeAlgorithm&) = delete;
  ExchangeAlgorithm& operator=(const ExchangeAlgorithm&) = delete;

  /// Posts all receives, sums this node's inputs, and sends what is ready.
  virtual void start(Call& call, ChunkInFlight& flight) const = 0;
  /// Does a stage; called when the receives of flight.stage are complete.
  virtual void act(Call& call, ChunkInFlight& flight) const = 0;
  /// Delivers the sums of a chunk whose stages are done, for a rank that is alone in its lane.
  virtual void deliver(Call& call, ChunkInFlight& flight) const;

 protected:
  void send(ChunkInFlight& flight, int node, int tag, std::span<const std::byte> bytes) const {
    flight.sends.push_back({node, lane_.transport.send(lane_.rank_on(node), tag, bytes)});
  }
  [[nodiscard]] LaneMessage receive(int node, int tag, std::span<std::byte> bytes) const {
    return {node, lane_.transport.receive(lane_.rank_on(node), tag, bytes)};
  }
  /// Sums this node's inputs of one partial sum of the plan into `to`.
  void sum_partial(Call& call, const ChunkInFlight& flight, std::size_t index, Range range,
                   std::byte* to) const;

  /// Returns where a range of the result is received or summed: in the output, or in a buffer.
  [[nodiscard]] static std::byte* place_of(const Call& call, ChunkInFlight& flight, Range range,
                                           bool over_input) {
    std::byte* const output = call.data().output_to_fill(range, over_input);
    return output != nullptr ? output : flight.result_at(range.begin);
  }
  /// Sums this node's partial sums of a range into `to`, for combine(). Parts that combine() reads
  /// directly from the input are left out.
  void sum_own_partials(Call& call, const ChunkInFlight& flight, Range range, std::byte* to) const;
  /// Sums a range over all partial sums of the plan into `sum`. `partials` has range.size() bytes
  /// for each of them, in plan order, and also holds intermediate sums.
  void combine(Call& call, Range range, std::byte* partials, std::byte* sum) const;

  const Lane& lane_;
};

std::unique_ptr<ExchangeAlgorithm> direct_exchange(const Lane& lane);
std::unique_ptr<ExchangeAlgorithm> halving_exchange(const Lane& lane);
std::unique_ptr<ExchangeAlgorithm> mpi_exchange(const Lane& lane);
/// For segments whose sum goes to a single rank: reduce_scatter.
std::unique_ptr<ExchangeAlgorithm> scatter_exchange(const Lane& lane);
/// For calls with a Packing, in which each node has one partial sum.
std::unique_ptr<ExchangeAlgorithm> compressed_exchange(const Lane& lane);
/// For segments with a single source: broadcast, allgather, gather, scatter, alltoall. A broadcast
/// of `chain_bytes` or more goes from node to node.
std::unique_ptr<ExchangeAlgorithm> copy_exchange(const Lane& lane, std::size_t chain_bytes);

}  // namespace tutti::collectives
