// SPDX-License-Identifier: Apache-2.0
// Large data in one node.
//
// Direct, when inputs can be read and outputs be written where they are: rank r reduces share r
// from all inputs straight into all outputs (of 3 ranks, s0 s1 s2 are the shares):
//
//   inputs   rank 0 [s0 s1 s2]    rank 1 [s0 s1 s2]    rank 2 [s0 s1 s2]
//                       |                    |                    |
//                       +-----> rank 1 sums s1 of all ranks <-----+
//                       |                    |                    |
//   outputs  rank 0 [.. s1 ..]    rank 1 [.. s1 ..]    rank 2 [.. s1 ..]
//
// In chunks, otherwise, through two scratch slots in turn: inputs that peers cannot read are copied
// into the stage slot first, and results that peers must not write (private outputs, or a consumer
// such as an optimizer) go to the result slot and are delivered from there by their owner while
// they are in its cache. Or each rank sums all chunks for itself, and needs no result slots.
//
// Fetched: where ranks can read each other's memory through the kernel, an input need not be copied
// to a slot by its owner and be read again by the others. They copy a piece of it into their own
// cache and sum it there. Results can travel likewise: each rank sums its share into its own
// output, and fetches the other shares from the outputs of the others.
//
// Updated: where ranks may update for each other, nothing but what an update writes goes back. Each
// rank sums a tile of its share, updates weights and states there, and copies these to the same
// places of the others, all of it in its first-level cache.
//
// Cost per rank, of n bytes on P ranks, in bytes read + written, and waits:
//   direct                        n + n                  2
//   staged, spread                n + n, and 4n          2 per chunk (n in and out of each slot)
//   staged, own                   P n + n, and 2n        1 per chunk
//   fetched, spread               n + n, and 2n + 2n     1 per piece
//   fetched, own                  P n + n, and 2(P-1)n   1
//   fetched, own, one source each n + n                  1
//   fetched, and results fetched  n + n/P, and 4n(P-1)/P 2
//   updated, of s bytes of places n + s/P + s            1
// What an update reads and writes, 2s bytes, comes on top of all but the last.
// Which is the fastest depends on the machine, the size and the number of ranks: see Learner.
//
// Slots are reused without further waiting: a rank that writes slot k % 2 of chunk k + 2 has seen
// all signals of chunk k + 1, which come after everybody's last use of chunk k.
#include <algorithm>

#include "collectives/node/reductions.hpp"

namespace tutti::collectives {

namespace {

/// Calls visit(piece) for pieces of a range, with an ear for failures.
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

/// This rank's share of the sums, to wherever `reduce` puts a piece.
template <class Reduce>
void reduce_share(Call& call, const Path& path, Reduce&& reduce) {
  const int ranks = call.memory().size();
  const Range all{0, call.layout().total()};
  const Range share = share_of(all, ranks, call.memory().local_rank);
  // A rank that was stopped and goes on hears of a failure before it has written much.
  constexpr std::size_t kMostReduced = std::size_t{4} << 20;
  if (!fetches_inputs(call, path)) {
    return in_pieces(call, share, kMostReduced, [&](Range piece) {
      reduce(piece, Sources{all, 0, 0, ranks});
    });
  }
  in_pieces(call, share, call.data().fetch_bytes(), [&](Range piece) {
    call.data().fetch(piece, /*own_only=*/false);
    reduce(piece, Sources{piece, 0, 0, ranks, piece});
  });
}

void reduce_direct(Call& call, const Path& path) {
  reduce_share(call, path, [&](Range piece, const Sources& sources) {
    call.data().reduce_to_all(piece, sources, path.outputs);
  });
  call.steps().signal();
  call.steps().wait_for_all();
}

/// The wait is for those who still update for this rank.
void reduce_and_update(Call& call, const Path& path) {
  reduce_share(call, path, [&](Range piece, const Sources& sources) {
    call.data().update_for_all(piece, sources, path.outputs);
  });
  call.steps().signal();
  call.steps().wait_for_all();
}

/// The last wait is for those who still read this rank's output.
void reduce_and_fetch(Call& call, const Path& path) {
  // Results are fetched in pieces of so much, for the sake of second outputs, and of failures.
  constexpr std::size_t kMostFetched = std::size_t{1} << 20;
  reduce_share(call, path, [&](Range piece, const Sources& sources) {
    call.data().reduce_to_self(piece, sources, path.outputs);
  });
  call.steps().signal();
  call.steps().wait_for_all();
  const int ranks = call.memory().size();
  const Range all{0, call.layout().total()};
  for (int step = 1; step < ranks; ++step) {  // no two ranks read from the same peer at first
    const int peer = (call.memory().local_rank + step) % ranks;
    in_pieces(call, share_of(all, ranks, peer), kMostFetched,
              [&](Range piece) { call.data().fetch_results(piece, peer); });
  }
  call.steps().signal();
  call.steps().wait_for_all();
}

/// Each rank copies what it wants, once. The wait is for those who still read its inputs.
void copy_fetched(Call& call, const Path& path) {
  call.data().copy_to_self(path.outputs);
  call.steps().signal();
  call.steps().wait_for_all();
}

/// What this rank sums of a chunk.
Range part_of(const Call& call, const Path& path, Range chunk) {
  if (path.results == Results::own) return chunk;
  return share_of(chunk, call.memory().size(), call.memory().local_rank);
}

/// Makes the inputs of a chunk readable for those who sum them.
Sources collect_inputs(Call& call, const Path& path, Range chunk, int slot) {
  Sources sources{chunk, slot, 0, call.memory().size()};
  if (fetches_inputs(call, path)) {
    sources.fetched = part_of(call, path, chunk);
    call.data().fetch(sources.fetched, /*own_only=*/path.results == Results::own);
  } else if (!call.announcement().inputs_shared()) {
    call.data().stage(chunk, slot, path.slots);
    call.steps().signal();
    call.steps().wait_for_all();
  }
  return sources;
}

/// `bytes` at a time, through slots where the path has them.
void reduce_chunks(Call& call, const Path& path, std::size_t bytes) {
  int slot = 0;
  in_pieces(call, {0, call.layout().total()}, bytes, [&](Range chunk) {
    const Sources sources = collect_inputs(call, path, chunk, slot);
    const Range part = part_of(call, path, chunk);
    if (path.results == Results::own) {
      call.data().reduce_to_self(part, sources, path.outputs);
    } else if (path.results == Results::updated) {
      call.data().update_for_all(part, sources, path.outputs);
    } else {
      call.data().reduce_to_all(part, sources,
                                call.announcement().in_place() ? path.outputs : path.slots);
      call.steps().signal();
      call.steps().wait_for_all();
      if (!call.announcement().in_place()) call.data().deliver(chunk, slot, path.outputs);
    }
    slot ^= 1;
  });
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
  std::size_t bytes = tuning.chunk_bytes;
  if (fetches) {  // what this rank sums of a chunk is fetched at once
    const int summed_by = path.results == Results::own ? 1 : call.memory().size();
    bytes = std::min(bytes, call.data().fetch_bytes() * static_cast<std::size_t>(summed_by));
  }
  reduce_chunks(call, path, bytes);
}

}  // namespace tutti::collectives
