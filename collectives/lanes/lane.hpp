// SPDX-License-Identifier: Apache-2.0
// LaneExchange: one rank's exchange with the same local rank of the other nodes.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/choice/tuning.hpp"
#include "collectives/lanes/exchange.hpp"
#include "collectives/node/call.hpp"

namespace tutti::collectives {

/// Moves shares of chunks between the nodes, several chunks at a time, by the ExchangeAlgorithm
/// that fits the call.
class LaneExchange {
 public:
  LaneExchange(const Topology& topology, const CombinePlan& plan, Waiter& waiter,
               Transport& transport, const Tuning& tuning);
  ~LaneExchange();
  LaneExchange(const LaneExchange&) = delete;
  LaneExchange& operator=(const LaneExchange&) = delete;

  /// Sums this lane's share of a chunk, staged in `slot`, over the node, and starts its exchange.
  void start(Call& call, std::size_t chunk_index, Range chunk, std::size_t slot);
  /// Waits for a chunk that was started, and writes its result to every rank's output or result
  /// `slot`; a rank that is alone in its lane delivers it instead.
  void finish(Call& call, std::size_t chunk_index, std::size_t slot);
  /// Advances every started chunk as far as messages allow.
  void poll(Call& call);

 private:
  [[nodiscard]] const ExchangeAlgorithm& algorithm_for(const Call& call) const;
  [[nodiscard]] ChunkInFlight& flight(std::size_t chunk_index) {
    return *flights_[chunk_index % flights_.size()];
  }
  void advance(Call& call, ChunkInFlight& flight, std::size_t limit);
  [[nodiscard]] bool all_done(std::vector<LaneMessage>& messages);
  [[nodiscard]] std::vector<int> ranks_awaited(const ChunkInFlight& flight) const;

  Lane lane_;
  Waiter& waiter_;
  std::unique_ptr<ExchangeAlgorithm> sums_;          ///< as chosen by the tuning
  std::unique_ptr<ExchangeAlgorithm> sums_to_root_;  ///< for a reduce
  std::unique_ptr<ExchangeAlgorithm> scattered_sums_;
  std::unique_ptr<ExchangeAlgorithm> compressed_sums_;
  std::unique_ptr<ExchangeAlgorithm> copies_;
  const ExchangeAlgorithm* algorithm_ = nullptr;  ///< that of the current call
  std::vector<std::unique_ptr<ChunkInFlight>> flights_;
  std::size_t oldest_ = 0;  ///< chunks oldest_ .. next_ - 1 are started and not finished
  std::size_t next_ = 0;
};

}  // namespace tutti::collectives
