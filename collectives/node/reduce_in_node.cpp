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
//   staged, own                   P n + n, and 2n        at most 1 per chunk, only if one is
//   missing fetched, spread               n + n, and 2n + 2n     1 per piece fetched, own P n + n,
//   and 2(P-1)n   1 fetched, own, one source each n + n                  1 fetched, and results
//   fetched  n + n/P, and 4n(P-1)/P 2 updated, arrays of s bytes    n + s/P + s            1
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

/// Reduces chunks of `bytes` bytes, where each rank sums for itself. A rank stages one chunk ahead
/// of what it sums, and more while other ranks have not staged the chunk that it would sum next. So
/// a rank with a core of its own waits only for lines in transit, and one that shares a core waits
/// once for many chunks.
void reduce_staged(Call& call, const Path& path, std::size_t bytes) {
  const std::size_t total = call.layout().total();
  const std::size_t chunks = (total + bytes - 1) / bytes;
  const auto chunk = [&](std::size_t index) {
    return Range{index * bytes, std::min(total, (index + 1) * bytes)};
  };
  SlotRing& to_stage = call.data().slots();
  SlotRing to_sum = to_stage;
  const std::size_t most_ahead = to_stage.most_ahead(bytes);
  for (std::size_t staged = 0, summed = 0; summed < chunks;) {
    call.waiter().check_failure();
    const std::size_t ahead = staged - summed;
    if (staged < chunks && ahead <= most_ahead &&
        (ahead < 2 || !call.steps().have_done(summed + 1))) {
      call.data().stage(chunk(staged), to_stage.take(chunk(staged).size()), path.slots);
      call.steps().signal();
      ++staged;
      continue;
    }
    call.steps().wait_for_first(summed + 1);
    reduce_without_step(call, path,
                        {.chunk = chunk(summed),
                         .slot = to_sum.take(chunk(summed).size()),
                         .count = call.memory().size()});
    ++summed;
  }
}

void reduce_in_chunks(Call& call, const Path& path, const Tuning& tuning) {
  const bool fetches = fetches_inputs(call, path);
  const bool stages = !fetches && !call.announcement().inputs_shared();
  if (stages && path.results != Results::spread) {
    reduce_staged(call, path, tuning.staged_bytes(path, call.layout().total()));
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
