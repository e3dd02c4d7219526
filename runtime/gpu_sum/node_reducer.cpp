// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu_sum/node_reducer.hpp"

namespace tutti::gpus {

NodeReducer::NodeReducer(Group& group, std::shared_ptr<Gpus> gpus, int device,
                         std::unique_ptr<NodeCollectives> node, bool registers)
    : group_(group),
      gpus_(std::move(gpus)),
      device_(device),
      node_(std::move(node)),
      registered_(registers ? std::make_unique<RegisteredMemory>(group, node_) : nullptr),
      in_flight_(group, gpus_, device, node_) {}

/// After a failure the peers may take part in no end. Registered memory is freed with it, so that
/// what still reads sums there is waited for.
NodeReducer::~NodeReducer() {
  gpus_->leave(device_, this);
  const bool can_free = registered_ == nullptr || is_marked();
  in_flight_.finish();
  if (can_free && !group_.failed()) node_->part();
}

/// All that is in the stream counts as a sum in flight, with its deadline.
void NodeReducer::mark_end() {
  in_flight_.begin();
  in_flight_.end();
}

bool NodeReducer::is_marked() noexcept {
  try {
    mark_end();
    return true;
  } catch (const Error&) {
    in_flight_.abort();
    return false;
  }
}

std::byte* NodeReducer::registered(std::size_t bytes) {
  return registered_ == nullptr ? nullptr : registered_->take(bytes);
}

void NodeReducer::allreduce(std::span<const Part> parts) {
  carry_out([&] {
    require_one_order(*gpus_, device_, this);
    if (registered_ != nullptr) {
      registered_->use([&] {
        mark_end();
        in_flight_.await();
      });
    }
    sums_.clear();
    for (const Part& part : parts) {
      sums_.push_back(
          {part.from == nullptr ? part.data : part.from, part.data, part.count, part.dtype});
    }
    in_flight_.begin();
    node_->allreduce(gpus_->stream(device_), sums_);
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
  std::string text = gpus_->accelerator().node_library().describe();
  if (group_.topology().num_nodes() > 1) text += " over all nodes";
  return registered_ == nullptr ? text : text + ", in registered memory";
}

}  // namespace tutti::gpus
