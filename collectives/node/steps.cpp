// SPDX-License-Identifier: Apache-2.0
#include "collectives/node/steps.hpp"

#include <algorithm>
#include <vector>

namespace tutti::collectives {

void Steps::signal() {
  ++step_;
  call_.memory.control().step.store(step_, std::memory_order_release);
  call_.waiter.wake();
}

bool Steps::have_done(std::uint64_t steps) const {
  const std::uint64_t target = in_call(steps);
  const auto& peers = call_.memory.peers;
  return std::all_of(peers.begin(), peers.end(), [&](const Peer& peer) {
    return peer.control().step.load(std::memory_order_acquire) >= target;
  });
}

void Steps::wait_for_ranks(int first, int count, std::uint64_t step) {
  const auto missing = [&](int peer) {
    return call_.memory.peers[peer].control().step.load(std::memory_order_acquire) < step;
  };
  const int end = std::min(first + count, call_.memory.size());
  int arrived = first;
  const auto ready = [&] {
    while (arrived < end && (arrived == call_.memory.local_rank || !missing(arrived))) ++arrived;
    return arrived == end;
  };
  call_.waiter.until(ready, [&] { return call_.ranks_where(missing); });
}

/// Waits in two levels: the first rank of each group of ranks signals that its whole group has
/// arrived.
void Steps::wait_for_groups(std::uint64_t step) {
  const int group = call_.tuning.wait_group;
  const int leader = call_.memory.local_rank / group * group;
  if (call_.memory.local_rank == leader) {
    wait_for_ranks(leader, group, step);
    call_.memory.control().group_step.store(step, std::memory_order_release);
    call_.waiter.wake();
  }
  const auto missing = [&](int peer) {
    const auto& progress = peer % group == 0 ? call_.memory.peers[peer].control().group_step
                                             : call_.memory.peers[peer].control().step;
    return progress.load(std::memory_order_acquire) < step;
  };
  int arrived = 0;
  const auto ready = [&] {
    while (arrived < call_.memory.size() && !missing(arrived)) arrived += group;
    return arrived >= call_.memory.size();
  };
  call_.waiter.until(ready, [&] { return call_.ranks_where(missing); });
}

void Steps::wait_for_all(std::uint64_t step) {
  call_.turn_to(Activity::wait_in_node);
  if (call_.tuning.wait_group >= call_.memory.size()) {
    return wait_for_ranks(0, call_.memory.size(), step);
  }
  wait_for_groups(step);
}

void Steps::wait_for(int peer, std::uint64_t step) {
  const std::uint64_t target = in_call(step);
  const auto& progress = call_.memory.peers[peer].control().step;
  call_.waiter.until([&] { return progress.load(std::memory_order_acquire) >= target; },
                     [&] { return std::vector<int>{call_.topology.local_ranks()[peer]}; });
}

}  // namespace tutti::collectives
