// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/updates.hpp"

#include <array>
#include <cstdio>

#include "tutti/error.hpp"

namespace tutti {

namespace {
constexpr int kMostStates = 8;
}

Optimizer* UpdateRule::optimizer() const {
  const auto* found = std::get_if<std::shared_ptr<Optimizer>>(&rule);
  return found == nullptr ? nullptr : found->get();
}

std::uint64_t UpdateRule::fingerprint() const {
  if (const Optimizer* running = optimizer()) return running->fingerprint();
  return rule.index();  // nothing is known of an updater but that there is one
}

std::string UpdateRule::in_words() const {
  if (const Optimizer* running = optimizer()) {
    char rate[32];
    std::snprintf(rate, sizeof rate, "%.9g", running->learning_rate());
    return " with " + running->name() + " (learning rate " + rate + ")";
  }
  return updater() != nullptr ? " with an updater" : "";
}

std::vector<Tensor> new_states(const Optimizer& optimizer, const Entry& entry) {
  std::vector<Tensor> states;
  for (int i = 0; i < optimizer.num_states(); ++i) {
    states.push_back(Tensor::zeros(entry.shape(), entry.dtype()));
  }
  return states;
}

OptimizerConsumer::OptimizerConsumer(const Optimizer& optimizer, std::span<Entry* const> entries)
    : optimizer_(optimizer), entries_(entries) {
  steps_.reserve(entries.size());
  for (Entry* entry : entries) {
    if (entry->dtype() != DType::float32 && entry->dtype() != DType::float64) {
      throw Error(ErrorCode::invalid_argument,
                  tutti::in_words(entry->key, entry->shape(), entry->dtype()) + ": " +
                      optimizer.name() + " updates float32 and float64 values");
    }
    if (entry->states.empty()) entry->states = new_states(optimizer, *entry);
    steps_.push_back(optimizer.step(entry->key, entry->updates + 1));
  }
}

template <class Real>
void OptimizerConsumer::update(std::size_t segment, std::size_t first, std::size_t count,
                               const std::byte* reduced) {
  Entry& entry = *entries_[segment];
  std::array<Real*, kMostStates> states{};
  for (std::size_t i = 0; i < entry.states.size(); ++i) {
    states[i] = entry.states[i].values<Real>().data() + first;
  }
  optimizer_.update(steps_[segment], {reinterpret_cast<const Real*>(reduced), count},
                    entry.replica.values<Real>().subspan(first, count),
                    std::span<Real* const>(states.data(), entry.states.size()));
}

void OptimizerConsumer::consume(std::size_t segment, std::size_t first, std::size_t count,
                                const std::byte* reduced) {
  if (entries_[segment]->dtype() == DType::float32) {
    update<float>(segment, first, count, reduced);
  } else {
    update<double>(segment, first, count, reduced);
  }
}

void OptimizerConsumer::commit() {
  for (Entry* entry : entries_) ++entry->updates;
}

}  // namespace tutti
