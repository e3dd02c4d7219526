// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu_sum/node_reducer.hpp"

namespace tutti::gpus {

NodeReducer::NodeReducer(Group& group, std::shared_ptr<Gpus> gpus, int device,
                         std::shared_ptr<NodeCollectives> node)
    : group_(group),
      gpus_(std::move(gpus)),
      device_(device),
      node_(std::move(node)),
      patience_(patience_of(group, "sum between GPUs")),
      in_flight_(group, gpus_, device, node_) {}

/// After a failure the communicator is not kept for another group: not all ranks may have made the
/// same calls.
NodeReducer::~NodeReducer() {
  in_flight_.finish();
  if (group_.failed()) gpus_->kept(device_).forget(node_.get());
}

void NodeReducer::allreduce(std::span<const Sum> sums) {
  carry_out([&] {
    SumTurn turn;  // for a group's first sum; later calls have begun a turn before
    turn.begin(*gpus_, device_);
    in_flight_.begin();
    node_->allreduce(gpus_->stream(device_), sums, patience_);
    in_flight_.end();
  });
}

void NodeReducer::finish() {
  if (group_.topology().num_nodes() > 1) await();
}

void NodeReducer::await() {
  carry_out([&] { in_flight_.await(); });
}

void NodeReducer::check() {
  carry_out([&] { in_flight_.check(); });
}

std::string NodeReducer::describe() const {
  const std::string library = gpus_->accelerator().node_library().describe();
  return group_.topology().num_nodes() > 1 ? library + " over all nodes" : library;
}

}  // namespace tutti::gpus
