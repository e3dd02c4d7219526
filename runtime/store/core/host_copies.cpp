// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/core/host_copies.hpp"

#include <utility>

#include "runtime/store/core/replica.hpp"

namespace tutti {

namespace {

Tensor copy_on(Group& group, Device device, const ConstTensorView& tensor) {
  Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype(), device);
  group.copy(copy, tensor);
  return copy;
}

}  // namespace

ConstTensorView ReadableValues::take(const ConstTensorView& value) {
  if (value.device().kind == DeviceKind::cpu) return value;
  copies_.push_back(copy_on(group_, cpu(), value));
  return copies_.back();
}

/// Copies all entries before anything is exchanged, so that a lack of memory changes nothing.
HostCopies::HostCopies(Group& group, std::span<Entry* const> entries) : group_(group) {
  for (Entry* entry : entries) {
    if (entry->replica.device().kind == DeviceKind::cpu) continue;
    Tensor replica = entry->is_row_sparse() ? zero_table(entry->shape(), entry->dtype()).tensor
                                            : group.allocate(entry->shape(), entry->dtype());
    group.copy(replica, entry->replica);
    std::vector<Tensor> states;
    for (const Tensor& state : entry->states) states.push_back(copy_on(group, cpu(), state));
    moved_.push_back({entry, std::move(replica), std::move(states)});
  }
  for (Moved& moved : moved_) {
    std::swap(moved.replica, moved.entry->replica);
    std::swap(moved.states, moved.entry->states);
  }
}

HostCopies::~HostCopies() {
  for (Moved& moved : moved_) {
    std::swap(moved.replica, moved.entry->replica);
    std::swap(moved.states, moved.entry->states);
  }
}

void HostCopies::write_back() {
  for (Moved& moved : moved_) {
    group_.copy(moved.replica, moved.entry->replica);
    moved.states.clear();
    for (const Tensor& state : moved.entry->states) {
      moved.states.push_back(copy_on(group_, moved.replica.device(), state));
    }
  }
}

}  // namespace tutti
