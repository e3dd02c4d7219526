// SPDX-License-Identifier: Apache-2.0
#include "support/local_weights.hpp"

#include <utility>

namespace apps {

LocalWeights::LocalWeights(std::vector<tutti::Key> keys,
                           const std::vector<tutti::ConstTensorView>& initial,
                           std::shared_ptr<tutti::Optimizer> optimizer)
    : optimizer_(std::move(optimizer)) {
  for (std::size_t index = 0; index < keys.size(); ++index) {
    Entry entry{.key = std::move(keys[index]),
                .weight = tutti::Tensor::zeros(initial[index].shape()),
                .states = {}};
    for (int state = 0; state < optimizer_->num_states(); ++state) {
      entry.states.push_back(tutti::Tensor::zeros(initial[index].shape()));
    }
    entries_.push_back(std::move(entry));
  }
  assign(initial);
  begin_at(0);
}

void LocalWeights::update(const std::vector<tutti::Tensor>& gradients) {
  ++updates_;
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    Entry& entry = entries_[index];
    std::vector<float*> states;
    for (tutti::Tensor& state : entry.states) states.push_back(state.values<float>().data());
    optimizer_->update(optimizer_->step(entry.key, updates_, first_ + updates_),
                       tutti::ElementRange<float>{.gradient = gradients[index].values<float>(),
                                                  .weight = entry.weight.values<float>(),
                                                  .states = states});
  }
}

void LocalWeights::assign(const std::vector<tutti::ConstTensorView>& weights) {
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    entries_[index].weight.view().copy_from(weights[index]);
  }
}

void LocalWeights::begin_at(std::uint64_t updates) {
  const bool is_stateless = optimizer_->num_states() == 0;  // then there is nothing to begin
  first_ = is_stateless ? 0 : updates;
  updates_ = updates - first_;
  for (Entry& entry : entries_) {
    for (std::size_t state = 0; state < entry.states.size(); ++state) {
      if (optimizer_->starts_as_weight(static_cast<int>(state))) {
        entry.states[state].view().copy_from(entry.weight);
      } else {
        entry.states[state].fill(0.0);
      }
    }
  }
}

}  // namespace apps
