// SPDX-License-Identifier: Apache-2.0
// Reduces large data on several nodes: sums in the node, exchanges between nodes, and distributes
// the results in the node.
//
//   chunk i       : inputs --(stage)--> lane l sums share l of the node --> LaneExchange::start
//   chunk i - lag : LaneExchange::finish --> every rank's output or result slot --> deliver
//
//            node 0                               node 1
//   rank 0 |s0 s1|  lane 0 holds s0  <--- s0 --->  lane 0  rank 2 |s0 s1|
//   rank 1 |s0 s1|  lane 1 holds s1  <--- s1 --->  lane 1  rank 3 |s0 s1|
//
// Every local rank carries a share (there are as many lanes as the smallest node has ranks), so all
// ranks of a node drive the network. `lag` chunks are between the nodes at any time: while chunk i
// is summed in the node, the messages of the previous chunks travel.
//
// A rank that is alone in its node, or whose lane is separate, stages nothing, and reads results
// directly from its lane.
//
// Where each node sends or receives blocks of its own, a chunk has parts of every node's blocks, so
// that all links are in use at any time, instead of those of one node after the other. And of a
// share of sums a node keeps about an N-th, for which it has the partial sums of all nodes.
//
// Cost, for n bytes on N nodes of P ranks: 2 n (N-1)/N bytes per node in and out, which is the
// minimum; within the node each rank reads and writes n bytes. It is used for data that is too
// large to travel with the handshakes.
#include "collectives/lanes/reduce_in_lanes.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace tutti::collectives {

namespace {

/// True if elements of different blocks can be interleaved. A consumer needs the order of segments;
/// either all ranks have one or none has.
bool may_be_interleaved(const Operation& operation) {
  const bool has_blocks = operation.kind == Kind::allgather || operation.kind == Kind::alltoall ||
                          operation.kind == Kind::reduce_scatter;
  return has_blocks && operation.consumer == nullptr && !operation.lanes_apart;
}

/// Returns a stream for each node: the sums that it keeps, or else the blocks that it sends. In an
/// alltoall a node begins with blocks that stay on it, and goes on to the nodes after it, so that
/// at any time each node sends to a different one.
FusedLayout::Streams streams_of(const Call& call) {
  const Topology& topology = call.topology();
  const int nodes = topology.num_nodes();
  const int turns = call.operation().kind == Kind::alltoall ? nodes : 1;
  const auto place_of = [&](const Segment& segment) {
    if (segment.source == kEveryRank) {
      return static_cast<std::size_t>(topology.node_of(segment.destination));
    }
    const int node = topology.node_of(segment.source);
    const int turn =
        turns == 1 ? 0 : (topology.node_of(segment.destination) - node + nodes) % nodes;
    return static_cast<std::size_t>(node) * static_cast<std::size_t>(turns) +
           static_cast<std::size_t>(turn);
  };
  const auto segments = call.layout().segments();
  const auto places = static_cast<std::size_t>(nodes) * static_cast<std::size_t>(turns);
  std::vector<std::size_t> begins(places + 1);
  for (const Segment& segment : segments) ++begins[place_of(segment) + 1];
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  FusedLayout::Streams streams;
  for (std::size_t end = 0; end < places;) {
    end += static_cast<std::size_t>(turns);
    streams.ends.push_back(begins[end]);
  }
  streams.segments.resize(segments.size());
  for (std::size_t i = 0; i < segments.size(); ++i) {
    streams.segments[begins[place_of(segments[i])]++] = i;
  }
  return streams;
}

/// Returns the largest size of chunks, up to `bytes`, for which no node keeps more than one of N
/// equal parts of a share.
std::size_t chunk_bytes_of_sums(const Call& call, const FusedLayout::Streams& streams,
                                std::size_t bytes) {
  std::size_t most = 0;
  std::size_t next = 0;
  for (const std::size_t end : streams.ends) {
    std::size_t room = 0;
    for (; next < end; ++next) room += call.layout().room_of(streams.segments[next]);
    most = std::max(most, room);
  }
  const std::size_t total = call.layout().total();
  const std::size_t even = std::min(most, total / streams.ends.size());
  const std::size_t lines = bytes / FusedLayout::kAlignment * even / most;
  return std::max(lines, total / FusedLayout::kAlignment / Steps::kMostChunks + 1) *
         FusedLayout::kAlignment;
}

/// Interleaves the blocks if that helps. Returns the size of chunks.
std::size_t interleave(Call& call, std::size_t bytes, std::size_t in_flight) {
  const bool are_sums = call.operation().kind == Kind::reduce_scatter;
  const std::size_t total = call.layout().total();
  if (!are_sums && total <= bytes * in_flight) return bytes;  // all chunks are under way at once
  const FusedLayout::Streams streams = streams_of(call);
  if (are_sums) bytes = chunk_bytes_of_sums(call, streams, bytes);
  const auto lanes = static_cast<std::size_t>(call.topology().num_lanes());
  const std::size_t share = std::max(bytes / lanes, FusedLayout::kAlignment);
  call.interleave(streams, (total + share - 1) / share);
  return bytes;
}

}  // namespace

void reduce_in_lanes(Call& call, const Path& path, const Tuning& tuning, LaneExchange* lane) {
  const auto poll_lane = [&] { lane->poll(call); };
  const FunctionRef<void()> poll(poll_lane);
  const PollGuard guard(call.waiter(), lane == nullptr ? nullptr : &poll);

  const std::size_t total = call.layout().total();
  const WritePolicy slots = tuning.slot_writes(total);
  const std::size_t in_flight = tuning.chunks_in_flight_of(path);
  std::size_t bytes = tuning.chunk_bytes_of(path);
  if (may_be_interleaved(call.operation())) bytes = interleave(call, bytes, in_flight);
  const std::size_t chunks = (total + bytes - 1) / bytes;
  const std::size_t lag = std::min(in_flight, chunks) - 1;
  const auto chunk = [&](std::size_t index) {
    return Range{index * bytes, std::min(total, (index + 1) * bytes)};
  };
  const bool alone = call.is_alone_in_lane();
  for (std::size_t i = 0; i < chunks + lag; ++i) {
    call.waiter().check_failure();
    if (i < chunks) {
      std::size_t staged = 0;
      if (!call.announcement().inputs_shared() && !alone) {
        staged = call.data().slots().take(bytes);
        call.data().stage(chunk(i), staged, slots);
        call.steps().signal();
        call.steps().wait_for_all();
      }
      if (lane != nullptr) lane->start(call, i, chunk(i), staged);
    }
    if (i >= lag) {
      const std::size_t done = i - lag;
      const bool in_slots = !alone && !call.announcement().in_place();
      const std::size_t results = in_slots ? call.data().slots().take(bytes) : 0;
      if (lane != nullptr) lane->finish(call, done, results);
      if (alone) continue;
      call.steps().signal();
      call.steps().wait_for_all();
      if (in_slots) call.data().deliver(chunk(done), results, WritePolicy::cached);
    }
  }
}

}  // namespace tutti::collectives
