// SPDX-License-Identifier: Apache-2.0
// Large data on several nodes: sum in the node, exchange between nodes, spread in the node.
//
//   chunk i       : inputs --(stage)--> lane l sums share l of the node --> LaneExchange::start
//   chunk i - lag : LaneExchange::finish --> every rank's output or result slot --> deliver
//
//            node 0                               node 1
//   rank 0 |s0 s1|  lane 0 holds s0  <--- s0 --->  lane 0  rank 2 |s0 s1|
//   rank 1 |s0 s1|  lane 1 holds s1  <--- s1 --->  lane 1  rank 3 |s0 s1|
//
// Every local rank carries a share (as many lanes as the smallest node has ranks), so all of a
// node's ranks drive the network. `lag` chunks are between the nodes at any time: while chunk i is
// summed in the node, the messages of the chunks before it travel.
//
// A rank that is alone in its node, or has data of its own, stages nothing, and takes results from
// where its lane has them.
//
// Cost, of n bytes on N nodes of P ranks: 2 n (N-1)/N bytes per node in and out, which is the least
// possible; in the node reads and writes of n bytes per rank. Wins where data is too large to
// travel with the handshakes.
#include "collectives/algorithms.hpp"

namespace tutti::collectives {

namespace {

/// Lets every wait of the call move the lane's messages on.
class PollGuard {
 public:
  PollGuard(Waiter& waiter, const FunctionRef<void()>* poll) : waiter_(waiter) {
    waiter_.set_poll(poll);
  }
  ~PollGuard() { waiter_.set_poll(nullptr); }
  PollGuard(const PollGuard&) = delete;
  PollGuard& operator=(const PollGuard&) = delete;

 private:
  Waiter& waiter_;
};

}  // namespace

void reduce_in_lanes(Call& call, const Path& path, const Tuning& tuning, LaneExchange* lane) {
  const auto poll_lane = [&] { lane->poll(call); };
  const FunctionRef<void()> poll(poll_lane);
  const PollGuard guard(call.waiter(), lane == nullptr ? nullptr : &poll);

  const std::size_t total = call.layout().total();
  const WritePolicy slots = tuning.slot_writes(total);
  const std::size_t bytes = tuning.chunk_bytes_of(path);
  const std::size_t chunks = (total + bytes - 1) / bytes;
  const std::size_t lag = std::min(tuning.chunks_in_flight_of(path), chunks) - 1;
  const auto chunk = [&](std::size_t index) {
    return Range{index * bytes, std::min(total, (index + 1) * bytes)};
  };
  const bool alone = call.is_alone_in_lane();
  for (std::size_t i = 0; i < chunks + lag; ++i) {
    call.waiter().check_failure();
    if (i < chunks) {
      if (!call.inputs_shared() && !alone) {
        call.stage(chunk(i), static_cast<int>(i % 2), slots);
        call.signal();
        call.wait_for_all();
      }
      if (lane != nullptr) lane->start(call, i, chunk(i), static_cast<int>(i % 2));
    }
    if (i >= lag) {
      const std::size_t done = i - lag;
      if (lane != nullptr) lane->finish(call, done, static_cast<int>(done % 2));
      if (alone) continue;
      call.signal();
      call.wait_for_all();
      if (!call.in_place())
        call.deliver(chunk(done), static_cast<int>(done % 2), WritePolicy::cached);
    }
  }
}

}  // namespace tutti::collectives
