// SPDX-License-Identifier: Apache-2.0
// CallContext: the state that the parts of a call share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/choice/route.hpp"
#include "collectives/choice/tuning.hpp"
#include "collectives/job/function_ref.hpp"
#include "collectives/job/fused_layout.hpp"
#include "collectives/job/operation.hpp"
#include "collectives/job/topology.hpp"
#include "collectives/job/workers.hpp"
#include "collectives/wait/node_memory.hpp"
#include "collectives/wait/spans.hpp"
#include "collectives/wait/wait.hpp"

namespace tutti::collectives {

/// Allocates memory that peers can read, never freed: for tables of segments, and scratch slots.
using AllocateShared = std::function<std::byte*(std::size_t bytes)>;

/// Returns the signature of an operation whose data has `bytes` bytes in its layout.
inline Signature sign(const Operation& operation, std::size_t bytes) noexcept {
  const auto kind = static_cast<std::uint64_t>(operation.kind);
  const auto reduce = static_cast<std::uint64_t>(operation.reduce);
  const auto check = static_cast<std::uint64_t>(operation.check);
  // Odd numbers, so that digests, roots and sizes do not cancel out.
  constexpr std::uint64_t kSpreadRoot = 0x9e3779b97f4a7c15;
  constexpr std::uint64_t kSpreadBytes = 0xc2b2ae3d27d4eb4f;
  const std::uint64_t keys = operation.digest +
                             static_cast<std::uint64_t>(operation.root) * kSpreadRoot +
                             bytes * kSpreadBytes;
  return {keys, kind | reduce << 8 | check << Signature::kCheckShift};
}

/// This rank's current call. Written by its Call, read by the parts of the Call.
struct CallContext {
  const NodeMemory& memory;
  const Topology& topology;
  Waiter& waiter;
  const Tuning& tuning;
  Workers& workers;

  const Operation* operation = nullptr;
  FusedLayout layout{};
  Signature signature{};
  Route route = Route::small;
  std::uint64_t sequence = 0;
  SpanLog* spans = nullptr;  ///< the log of activities; null: nothing is logged

  /// Logs that another activity begins.
  void turn_to(Activity activity) const {
    if (spans != nullptr) spans->switch_to(activity);
  }

  /// The line in which a local rank announces this call.
  [[nodiscard]] AnnounceLine& line(int peer) const {
    return memory.peers[static_cast<std::size_t>(peer)].control().announce[sequence & 1];
  }
  /// The place of what that announcement has beside its line and slots.
  [[nodiscard]] std::byte* wide_payload(int peer) const {
    return memory.peers[static_cast<std::size_t>(peer)].wide().wide_payloads[sequence & 1];
  }

  /// Returns the segment to which the part belongs.
  [[nodiscard]] const Segment& segment(const FusedLayout::Part& part) const {
    return layout.segments()[part.segment];
  }
  [[nodiscard]] bool is_source(const Segment& segment) const {
    return segment.source == kEveryRank || segment.source == topology.rank;
  }
  [[nodiscard]] bool is_destination(const Segment& segment) const {
    return segment.destination == kEveryRank || segment.destination == topology.rank;
  }
  /// True if the result of a segment is written over its input. A copy from a single source leaves
  /// its input unchanged.
  [[nodiscard]] bool is_overwritten(const Segment& segment) const {
    if (segment.source != kEveryRank && operation->consumer == nullptr) return false;
    const std::size_t bytes = segment.count * size_of(segment.dtype);
    const auto meets = [&](const std::byte* output) {
      return output != nullptr && output < segment.input + bytes && segment.input < output + bytes;
    };
    return meets(segment.output) || meets(segment.second_output);
  }
  /// True if no other rank of the node contributes to the data of this rank's lane.
  [[nodiscard]] bool is_alone_in_lane() const {
    return memory.size() == 1 || operation->lanes_apart;
  }

  /// The reduction from a segment's inputs to its outputs, in the segment's type.
  [[nodiscard]] Reduction to_output(std::size_t segment) const {
    const DType dtype = layout.segments()[segment].dtype;
    return {operation->reduce, dtype, dtype};
  }

  /// Returns the ranks of this node for which `is_missing(local rank)` is true.
  [[nodiscard]] std::vector<int> ranks_where(FunctionRef<bool(int)> is_missing) const {
    std::vector<int> ranks;
    for (int peer = 0; peer < memory.size(); ++peer) {
      if (is_missing(peer)) ranks.push_back(topology.local_ranks()[peer]);
    }
    return ranks;
  }
};

}  // namespace tutti::collectives
