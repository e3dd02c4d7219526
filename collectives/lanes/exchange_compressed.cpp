// SPDX-License-Identifier: Apache-2.0
// Compressed exchange: every node's partial sum is packed, and sent to all others.
//
//   share of a chunk (3 nodes), s = the node's sum + this lane's residual:
//
//   node 0  pack(s0) --> node 1, node 2          every node unpacks all three, its own as well, and
//   node 1  pack(s1) --> node 0, node 2          sums them in the order of the nodes
//   node 2  pack(s2) --> node 0, node 1
//
// Cost, for n bytes that are packed into c n, on N nodes: one round of N - 1 messages; c n (N-1)
// bytes sent and received per node, compared with 2 n (N-1)/N in the direct exchange. Packed values
// cannot be summed on the way, so it is faster up to N = 2/c nodes.
#include <algorithm>

#include "collectives/compression/codec.hpp"
#include "collectives/lanes/exchange.hpp"

namespace tutti::collectives {

namespace {

class CompressedExchange final : public ExchangeAlgorithm {
 public:
  using ExchangeAlgorithm::ExchangeAlgorithm;

  void start(Call& call, ChunkInFlight& flight) const override {
    const std::size_t bytes = packed_bytes(call, flight);
    const auto nodes = static_cast<std::size_t>(lane_.num_nodes());
    flight.incoming.resize(std::max(flight.incoming.size(), bytes * nodes));
    auto& arrivals = flight.add_stage();
    if (bytes == 0) return;
    for (int node = 0; node < lane_.num_nodes(); ++node) {
      if (node == lane_.node()) continue;
      arrivals.push_back(receive(node, kPartialTag, {packed_of(flight, node, bytes), bytes}));
    }
    const std::size_t partial = lane_.own_first();
    sum_partial(call, flight, partial, flight.share, flight.result.data());
    std::byte* own = packed_of(flight, lane_.node(), bytes);
    pack(call, flight, own);
    for (int step = 1; step < lane_.num_nodes(); ++step) {
      const int node =
          (lane_.node() + step) % lane_.num_nodes();  // each node begins with another one
      send(flight, node, kPartialTag, {own, bytes});
    }
  }

  /// Unpacks and sums, once all nodes' packed sums have arrived.
  void act(Call& call, ChunkInFlight& flight) const override {
    const Codec& codec = call.operation().packing->codec;
    const std::size_t bytes = packed_bytes(call, flight);
    Codec::Workspace workspace;
    std::vector<const std::byte*> packed;
    for (int node = 0; node < lane_.num_nodes(); ++node) {
      packed.push_back(packed_of(flight, node, bytes));
    }
    if (!call.workers().works(2 * packed.size() * (flight.share.size() + bytes))) return;
    call.layout().for_each_part(flight.share, [&](const FusedLayout::Part& part) {
      float* sums = sums_of(flight, part);
      for (std::size_t first = 0; first < part.count; first += Codec::kTile) {
        const std::size_t now = std::min(Codec::kTile, part.count - first);
        codec.sum(packed, {part.count, first, now}, workspace, sums + first);
      }
      for (const std::byte*& from : packed) from += codec.packed_bytes(part.count);
    });
  }

 private:
  static std::size_t packed_bytes(const Call& call, const ChunkInFlight& flight) {
    std::size_t bytes = 0;
    call.layout().for_each_part(flight.share, [&](const FusedLayout::Part& part) {
      bytes += call.operation().packing->codec.packed_bytes(part.count);
    });
    return bytes;
  }

  static std::byte* packed_of(ChunkInFlight& flight, int node, std::size_t bytes) {
    return flight.incoming.data() + static_cast<std::size_t>(node) * bytes;
  }

  static float* sums_of(ChunkInFlight& flight, const FusedLayout::Part& part) {
    return reinterpret_cast<float*>(flight.result_at(part.position));
  }

  /// Packs the node's sums, which lie where the result will be, and updates the residuals.
  static void pack(Call& call, ChunkInFlight& flight, std::byte* packed) {
    const Packing& packing = *call.operation().packing;
    const std::size_t passes = packing.codec.has_residual() ? 5 : 1;  // 2 to pack, 3 to feed back
    if (!call.workers().works(passes * flight.share.size() + packed_bytes(call, flight))) return;
    call.layout().for_each_part(flight.share, [&](const FusedLayout::Part& part) {
      const float* sums = sums_of(flight, part);
      float* residual = packing.residuals[part.segment];
      if (residual != nullptr) residual += part.first;
      packing.codec.pack(sums, residual, part.count, packed);
      packing.codec.feed_back(sums, residual, part.count, packed);
      packed += packing.codec.packed_bytes(part.count);
    });
  }
};

}  // namespace

std::unique_ptr<ExchangeAlgorithm> compressed_exchange(const Lane& lane) {
  return std::make_unique<CompressedExchange>(lane);
}

}  // namespace tutti::collectives
