// SPDX-License-Identifier: Apache-2.0
#include "collectives/node/call.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <string>
#include <utility>

namespace tutti::collectives {

namespace {

// Longer than ranks in step wait for each other between two chunks.
constexpr auto kHelperSpin = std::chrono::microseconds(30);

Workers::Options workers_for(const NodeMemory& memory, const Topology& topology,
                             const Waiter& waiter, const Tuning& tuning) {
  const bool have_cores = tuning.threads <= topology.cores_per_rank;
  return {.threads = tuning.threads,
          .spin = have_cores ? kHelperSpin : std::chrono::microseconds(0),
          .warn = [&log = waiter.log()](const std::string& text) { log.warn(text); },
          .pace = memory.pace,
          .processors = memory.processors};
}

}  // namespace

Call::Call(const NodeMemory& memory, const Topology& topology, Waiter& waiter, const Tuning& tuning,
           AllocateShared allocate_shared)
    : allocate_shared_(std::move(allocate_shared)),
      workers_(workers_for(memory, topology, waiter, tuning)),
      context_{memory, topology, waiter, tuning, workers_},
      steps_(context_),
      tiny_(context_),
      updates_(context_),
      announcement_(context_, tiny_, updates_, allocate_shared_),
      data_(context_, announcement_, updates_) {}

void Call::prepare(const Operation& operation, bool wide, const Router& router) {
  if (operation.segments.data() == nullptr && !operation.segments.empty()) throw std::bad_alloc();
  context_.operation = &operation;
  context_.layout.assign(operation.segments, wide);
  require_steps();
  context_.signature = sign(operation, context_.layout.total());
  updates_.find();
  context_.route =
      router.choose(operation, context_.layout, [&] { return announcement_.own_class(); });
  if (route() == Route::small) return;
  announcement_.make_room();
  if (context_.topology.size == 1) return;
  if (operation.consumer != nullptr) data_.make_room_for_sums();
  make_ring();
}

/// Throws if the call would take too many steps. The chunk is smallest where a rank fetches a part
/// of each chunk, which only happens in one node.
void Call::require_steps() const {
  if (context_.topology.size == 1) return;
  const auto ranks = static_cast<std::size_t>(context_.memory.size());
  std::size_t least = context_.tuning.chunk_bytes;
  if (context_.topology.num_nodes() == 1 && data_.fetch_bytes() > 0)
    least = std::min(least, data_.fetch_bytes() * ranks);
  if (context_.layout.total() / Steps::kMostChunks < least) return;
  throw Error(ErrorCode::invalid_argument,
              std::to_string(context_.layout.total()) + " bytes in chunks of " +
                  std::to_string(least) +
                  " are too many chunks for one call; raise TUTTI_CHUNK_BYTES, or make several "
                  "calls");
}

/// Allocates this rank's ring at the first call that may need it; a group that only makes small
/// calls never does. Where other ranks read it, it is written once, so that the first calls that go
/// through it find its lines in a cache, as all later ones do: the learner compares paths by their
/// first calls.
void Call::make_ring() {
  ControlBlock& control = context_.memory.control();
  if (control.ring != 0) return;
  const std::size_t bytes = context_.tuning.ring_bytes;
  const std::size_t swapped = context_.tuning.swaps_slots ? SlotRing::kSwapped : 0;
  std::byte* const ring = allocate_shared_(bytes + swapped);
  if (context_.memory.size() > 1) std::memset(ring, 0, std::min(bytes, SlotRing::kMostPrepared));
  std::memset(ring + bytes, 0, swapped);
  control.ring = context_.memory.offset_of(ring);
  control.ring_bytes = bytes;
}

}  // namespace tutti::collectives
