// SPDX-License-Identifier: Apache-2.0
#include "collectives/node/call.hpp"

#include <algorithm>
#include <chrono>
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
          .pace = memory.pace};
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
  if (context_.topology.size > 1 && context_.memory.control().stage[0] == 0) make_slots();
}

/// A rank fetches a part of each chunk, and none where nodes exchange.
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

/// At the first call that may need them, in one piece: a group that makes small calls alone needs
/// none, and a rank that has no room for all keeps none.
void Call::make_slots() {
  const std::size_t chunk =
      context_.tuning.chunk_bytes * static_cast<std::size_t>(context_.tuning.most_pieces);
  const std::size_t bytes = (chunk + kLineBytes - 1) / kLineBytes * kLineBytes;
  std::uint64_t slot = context_.memory.offset_of(allocate_shared_(4 * bytes));
  ControlBlock& control = context_.memory.control();
  for (auto* slots : {control.result, control.stage}) {
    for (int i = 0; i < 2; ++i, slot += bytes) slots[i] = slot;
  }
}

}  // namespace tutti::collectives
