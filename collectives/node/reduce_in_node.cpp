// SPDX-License-Identifier: Apache-2.0
// Reduces large data in one node. There are several paths.
//
// Direct, if all inputs can be read and all outputs be written where they lie: rank r reduces share
// r from all inputs straight into all outputs (for 3 ranks, s0 s1 s2 are the shares):
//
//   inputs   rank 0 [s0 s1 s2]    rank 1 [s0 s1 s2]    rank 2 [s0 s1 s2]
//                       |                    |                    |
//                       +-----> rank 1 sums s1 of all ranks <-----+
//                       |                    |                    |
//   outputs  rank 0 [.. s1 ..]    rank 1 [.. s1 ..]    rank 2 [.. s1 ..]
//
// Otherwise in chunks, through scratch slots: inputs that peers cannot read are first copied into a
// slot; results that peers must not write (private outputs, or a consumer such as an optimizer) go
// to another slot, from which their owner delivers them while they are in its cache. Alternatively
// each rank sums all chunks for itself, and needs no result slots. Then it stages ahead: where it
// would wait for a peer, it copies later chunks.
//
// Two ranks may swap the slots: each writes next what it has read last, see SlotRing.
//
// Fetched, where ranks can read each other's memory through the kernel: instead of the owner
// copying an input to a slot and the others reading it there, the others copy a piece of the input
// into their own cache and sum it there. Results can travel in the same way: each rank sums its
// share into its own output, and fetches the other shares from the outputs of the others.
//
// Updated, where ranks may update for each other: only the updated arrays are written to the
// others. Each rank sums a tile of its share, updates weights and states with it, and copies these
// to the same arrays of the others, all within its first-level cache.
//
// Cost per rank of n bytes on P ranks: bytes read + written, and the number of waits:
//   direct                        n + n                  2
//   staged, spread                n + n, and 4n          2 per chunk (n in and out of each slot)
//   staged or swapped, own        P n + n, and 2n        1 per chunk, only if one is missing
//   fetched, spread               n + n, and 2n + 2n     1 per piece
//   fetched, own                  P n + n, and 2(P-1)n   1
//   fetched, own, one source each n + n                  1
//   fetched, and results fetched  n + n/P, and 4n(P-1)/P 2
//   updated, arrays of s bytes    n + s/P + s            1
// The 2s bytes that an update reads and writes are extra in all paths but the last. Which path is
// the fastest depends on the machine, the size and the number of ranks, see Learner.
//
// Slots are reused without further waits, see SlotRing.
#include <algorithm>

#include "collectives/node/reductions.hpp"

namespace tutti::collectives {

namespace {

/// Calls visit(piece) for pieces of a range, and checks for failures before each.
template <class Visit>
void in_pieces(Call& call, Range range, std::size_t bytes, Visit&& visit) {
  for (std::size_t begin = range.begin; begin < range.end; begin += bytes) {
    call.waiter().check_failure();
    visit(Range{begin, std::min(range.end, begin + bytes)});
  }
}

bool fetches_inputs(const Call& call, const Path& path) {
  return !call.announcement().inputs_shared() && path.inputs == Inputs::fetched;
}

/// Sums this rank's share piece by piece. `reduce` decides where the sums go.
template <class Reduce>
void reduce_share(Call& call, const Path& path, Reduce&& reduce) {
  const int ranks = call.memory().size();
  const Range all{0, call.layout().total()};
  const Range share = share_of(all, ranks, call.memory().local_rank);
  // Limits how much a rank that was stopped and resumed writes before it notices a failure.
  constexpr std::size_t kMostReduced = std::size_t{4} << 20;
  if (!fetches_inputs(call, path)) {
    return in_pieces(call, share, kMostReduced,
                     [&](Range piece) { reduce(piece, Sources{.chunk = all, .count = ranks}); });
  }
  in_pieces(call, share, call.data().fetch_bytes(), [&](Range piece) {
    call.data().fetch(piece, /*own_only=*/false);
    reduce(piece, Sources{.chunk = piece, .count = ranks, .fetched = piece});
  });
}

void reduce_direct(Call& call, const Path& path) {
  reduce_share(call, path, [&](Range piece, const Sources& sources) {
    call.data().reduce_to_all(piece, sources, path.outputs);
  });
  call.steps().signal();
  call.steps().wait_for_all();
}

/// Each rank updates its share for all ranks. At the end it waits for ranks that still update for
/// it.
void reduce_and_update(Call& call, const Path& path) {
  reduce_share(call, path, [&](Range piece, const Sources& sources) {
    call.data().update_for_all(piece, sources, path.outputs);
  });
  call.steps().signal();
  call.steps().wait_for_all();
}

/// Each rank sums its share into its own output, and fetches the others. At the end it waits for
/// ranks that still read its output.
void reduce_and_fetch(Call& call, const Path& path) {
  // Results are fetched in pieces of this size, so that they are copied to second outputs from the
  // cache, and failures are noticed in between.
  constexpr std::size_t kMostFetched = std::size_t{1} << 20;
  reduce_share(call, path, [&](Range piece, const Sources& sources) {
    call.data().reduce_to_self(piece, sources, path.outputs);
  });
  call.steps().signal();
  call.steps().wait_for_all();
  const int ranks = call.memory().size();
  const Range all{0, call.layout().total()};
  for (int step = 1; step < ranks; ++step) {  // ranks begin with different peers
    const int peer = (call.memory().local_rank + step) % ranks;
    in_pieces(call, share_of(all, ranks, peer), kMostFetched,
              [&](Range piece) { call.data().fetch_results(piece, peer); });
  }
  call.steps().signal();
  call.steps().wait_for_all();
}

/// Each rank copies the blocks that it wants. At the end it waits for ranks that still read its
/// inputs.
void copy_fetched(Call& call, const Path& path) {
  call.data().copy_to_self(path.outputs);
  call.steps().signal();
  call.steps().wait_for_all();
}

/// Returns the part of a chunk that this rank sums.
Range part_of(const Call& call, const Path& path, Range chunk) {
  if (path.results == Results::own) return chunk;
  return share_of(chunk, call.memory().size(), call.memory().local_rank);
}

/// Makes the inputs of a chunk readable for the ranks that sum them.
Sources collect_inputs(Call& call, const Path& path, Range chunk) {
  Sources sources{.chunk = chunk, .count = call.memory().size()};
  if (fetches_inputs(call, path)) {
    sources.fetched = part_of(call, path, chunk);
    call.data().fetch(sources.fetched, /*own_only=*/path.results == Results::own);
  } else if (!call.announcement().inputs_shared()) {
    sources.slot = call.data().slots().take(chunk.size());
    call.data().stage(chunk, sources.slot, path.slots);
    call.steps().signal();
    call.steps().wait_for_all();
  }
  return sources;
}

/// Sums a chunk where no step follows: results are for this rank, or are updated for all.
void reduce_without_step(Call& call, const Path& path, const Sources& sources) {
  const Range part = part_of(call, path, sources.chunk);
  if (path.results == Results::own) return call.data().reduce_to_self(part, sources, path.outputs);
  call.data().update_for_all(part, sources, path.outputs);
}

/// Reduces chunks of `bytes` bytes, with all ranks in step.
void reduce_chunks(Call& call, const Path& path, std::size_t bytes) {
  in_pieces(call, {0, call.layout().total()}, bytes, [&](Range chunk) {
    Sources sources = collect_inputs(call, path, chunk);
    if (path.results != Results::spread) return reduce_without_step(call, path, sources);
    const bool in_slots = !call.announcement().in_place();
    if (in_slots) sources.result_slot = call.data().slots().take(chunk.size());
    call.data().reduce_to_all(part_of(call, path, chunk), sources,
                              in_slots ? path.slots : path.outputs);
    call.steps().signal();
    call.steps().wait_for_all();
    if (in_slots) call.data().deliver(chunk, sources.result_slot, path.outputs);
  });
}

/// True if a call by this path can begin with a chunk that is staged before it is announced: what
/// ranks plan for must be what they all have in their slots.
bool may_begin_staged(const Path& path) {
  return is_staged(path.inputs) && path.slots == WritePolicy::cached &&
         path.results == Results::own;
}

/// True if all ranks have done so.
bool begins_staged(const Call& call, const Path& path, std::size_t chunks) {
  return chunks > 0 && call.announcement().first_staged(path.inputs) && may_begin_staged(path);
}

/// Those of a call whose blocks each rank copies for itself, through slots; else null. The same on
/// all ranks: consumers take the elements of all segments in order.
const BlockStreams* streams_of(Call& call, const Path& path, bool is_consumed) {
  const bool copies = path.results == Results::own && !is_consumed;
  return copies ? call.data().find_streams() : nullptr;
}

/// How a call goes through the ring: as streams of blocks, if there are some, or as it is laid out.
struct StagedCall {
  const BlockStreams* streams;
  std::size_t total;
  std::size_t chunk_bytes;

  StagedCall(Call& call, const Path& path, const Tuning& tuning, bool is_consumed)
      : streams(streams_of(call, path, is_consumed)),
        total(streams != nullptr ? streams->longest() : call.layout().total()),
        chunk_bytes(tuning.staged_bytes(path, total)) {}

  [[nodiscard]] std::size_t num_chunks() const { return (total + chunk_bytes - 1) / chunk_bytes; }
  [[nodiscard]] Range chunk(std::size_t index) const {
    return {index * chunk_bytes, std::min(total, (index + 1) * chunk_bytes)};
  }
};

/// True if this rank wants some result.
bool is_taker(const Call& call) {
  const int self = call.topology().rank;
  const auto segments = call.layout().segments();
  return std::any_of(segments.begin(), segments.end(), [&](const Segment& segment) {
    return segment.count > 0 && (segment.destination == kEveryRank || segment.destination == self);
  });
}

/// True if another rank wants something of this rank's inputs that it cannot read where it lies.
bool is_giver(const Call& call) {
  const int self = call.topology().rank;
  const auto segments = call.layout().segments();
  return std::any_of(segments.begin(), segments.end(), [&](const Segment& segment) {
    const bool gives = segment.source == kEveryRank || segment.source == self;
    return segment.count > 0 && gives && segment.destination != self &&
           !call.memory().is_mapped(call.memory().offset_of(segment.input));
  });
}

/// Stages what other ranks want of this rank's chunk. Elements that it alone wants are not staged
/// if each rank sums for itself.
void stage_chunk(Call& call, const Path& path, const StagedCall& staged, Range chunk,
                 std::size_t slot) {
  if (staged.streams == nullptr) {
    return call.data().stage(chunk, slot, path.slots, /*for_others=*/path.results == Results::own);
  }
  staged.streams->for_each_piece(call.memory().local_rank, chunk,
                                 [&](Range piece, std::size_t offset) {
                                   call.data().stage(piece, slot + offset, path.slots);
                                 });
}

/// Copies the blocks of one rank's chunk that this one wants.
void take_blocks(Call& call, const Path& path, const StagedCall& staged, int peer,
                 std::size_t index, std::size_t slot) {
  const auto take = [&](Range piece, std::size_t offset) {
    call.data().reduce_to_self(piece, {.chunk = piece, .slot = slot + offset, .count = 1},
                               path.outputs);
  };
  staged.streams->for_each_piece(peer, staged.chunk(index), take);
}

void take_chunk(Call& call, const Path& path, const StagedCall& staged, std::size_t index,
                std::size_t slot) {
  const int ranks = call.memory().size();
  if (staged.streams == nullptr) {
    return reduce_without_step(call, path,
                               {.chunk = staged.chunk(index), .slot = slot, .count = ranks});
  }
  for (int step = 1; step < ranks; ++step) {
    take_blocks(call, path, staged, (call.memory().local_rank + step) % ranks, index, slot);
  }
}

/// Copies a part of the blocks that this rank keeps. There are as many parts as chunks, so that
/// they are copied while the others' blocks are on their way.
void keep_blocks(Call& call, const Path& path, const StagedCall& staged, std::size_t index) {
  if (staged.streams == nullptr) return;
  const Range kept = staged.streams->kept(call.memory().local_rank);
  const auto parts = static_cast<int>(std::max<std::size_t>(staged.num_chunks(), 1));
  call.data().reduce_to_self(share_of(kept, parts, static_cast<int>(index)), {}, path.outputs);
}

/// Asks for the lines that this rank will stage if its next call is like this one: at once where it
/// takes nothing, so that it is done before the others, else while it waits for that call.
void ask_for_next(Call& call, const Path& path, const StagedCall& staged, bool takes) {
  if (path.slots == WritePolicy::streaming || !is_giver(call)) return;
  SlotRing ring = call.data().slots_for(path.inputs);
  const std::size_t slot = ring.take(std::min(staged.chunk_bytes, staged.total));
  LinesToWrite& lines = call.announcement().lines_to_write();
  lines.expect(call.data().own_slot(slot), std::min(staged.total, ring.length_from(slot)));
  if (!takes) lines.ask_for_all();
}

/// Each rank stages one chunk ahead of what it takes, and more while others have not staged what it
/// would take. So a rank that is alone on its core waits for lines that are on their way, and one
/// that shares it waits once for many chunks. One that takes nothing waits only where the ring is
/// too short for all chunks. The first chunk may have come with the announcements.
void reduce_staged(Call& call, const Path& path, const Tuning& tuning) {
  const StagedCall staged(call, path, tuning, call.announcement().call_class().consumed);
  const bool takes = staged.streams != nullptr ? staged.streams->is_taker()
                                               : path.results != Results::own || is_taker(call);
  SlotRing& to_stage = call.data().slots_for(path.inputs);
  SlotRing to_take = to_stage;
  const std::size_t chunks = staged.num_chunks();
  const std::size_t most_ahead = to_stage.most_ahead(staged.chunk_bytes);
  const bool waits = takes || chunks > most_ahead;
  std::size_t next = 0;
  const std::size_t announced = begins_staged(call, path, chunks) ? 1 : 0;
  if (announced > 0) to_stage.take(staged.chunk(next++).size());
  for (std::size_t taken = 0; taken < chunks;) {
    call.waiter().check_failure();
    const std::size_t ahead = next - taken;
    const std::size_t steps_to_take = taken + 1 - announced;
    if (next < chunks && ahead <= most_ahead &&
        (ahead < 2 || !waits || !call.steps().have_done(steps_to_take))) {
      const Range chunk = staged.chunk(next++);
      stage_chunk(call, path, staged, chunk, to_stage.take(chunk.size()));
      call.steps().signal();
      continue;
    }
    keep_blocks(call, path, staged, taken);
    if (waits && steps_to_take > 0) call.steps().wait_for_first(steps_to_take);
    take_chunk(call, path, staged, taken, to_take.take(staged.chunk(taken).size()));
    ++taken;
  }
  if (chunks == 0) keep_blocks(call, path, staged, 0);
  ask_for_next(call, path, staged, takes);
}

void reduce_in_chunks(Call& call, const Path& path, const Tuning& tuning) {
  const bool fetches = fetches_inputs(call, path);
  const bool stages = !fetches && !call.announcement().inputs_shared();
  if (stages && path.results != Results::spread) {
    reduce_staged(call, path, tuning);
  } else {
    std::size_t bytes = tuning.chunk_bytes;
    if (fetches) {  // this rank's part of a chunk is fetched in one go
      const int summed_by = path.results == Results::own ? 1 : call.memory().size();
      bytes = std::min(bytes, call.data().fetch_bytes() * static_cast<std::size_t>(summed_by));
    }
    reduce_chunks(call, path, bytes);
  }
  const bool is_read =
      path.results == Results::own && reads_where_they_are(path, call.announcement().call_class());
  if (!is_read && path.results != Results::updated) return;
  call.steps().signal();  // peers may still read this rank's inputs, or update for it
  call.steps().wait_for_all();
}

}  // namespace

std::uint32_t stage_first(Call& call, const Path& planned, const Tuning& tuning) {
  if (!is_giver(call)) return kFirstStaged | kFirstSwapped;
  if (!may_begin_staged(planned) || !call.data().has_slots()) return 0;
  const StagedCall staged(call, planned, tuning, call.operation().consumer != nullptr);
  SlotRing ring = call.data().slots_for(planned.inputs);  // which goes on once all have agreed
  if (staged.num_chunks() == 0 || !ring.may_be_early(staged.chunk_bytes)) return 0;
  const Range first = staged.chunk(0);
  stage_chunk(call, planned, staged, first, ring.take(first.size()));
  return planned.inputs == Inputs::swapped ? kFirstSwapped : kFirstStaged;
}

void reduce_in_node(Call& call, const Path& path, const Tuning& tuning) {
  const bool fetches = fetches_inputs(call, path);
  if (path.results == Results::fetched) return reduce_and_fetch(call, path);
  const bool copies = fetches && path.results == Results::own && has_single_sources(call.layout());
  if (copies && call.operation().consumer == nullptr) return copy_fetched(call, path);
  if (path.results == Results::spread && call.announcement().in_place() &&
      (call.announcement().inputs_shared() || fetches)) {
    return reduce_direct(call, path);
  }
  if (path.results == Results::updated && (call.announcement().inputs_shared() || fetches)) {
    return reduce_and_update(call, path);
  }
  reduce_in_chunks(call, path, tuning);
}

}  // namespace tutti::collectives
