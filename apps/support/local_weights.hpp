// SPDX-License-Identifier: Apache-2.0
// A rank's own copy of weights, which it trains between two outer steps without a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tutti/key.hpp>
#include <tutti/optimizer.hpp>
#include <tutti/tensor.hpp>

namespace apps {

/// float32 tensors on the cpu, with the states of an optimizer that stay on this rank. A store with
/// the same optimizer and the same gradients gives the same bits. All members are local.
class LocalWeights {
 public:
  LocalWeights(std::vector<tutti::Key> keys, const std::vector<tutti::ConstTensorView>& initial,
               std::shared_ptr<tutti::Optimizer> optimizer);

  [[nodiscard]] tutti::Optimizer& optimizer() const noexcept { return *optimizer_; }
  [[nodiscard]] tutti::ConstTensorView value(std::size_t index) const {
    return entries_[index].weight.view();
  }

  /// One step of the optimizer; gradients[i] has the shape of value(i).
  void update(const std::vector<tutti::Tensor>& gradients);
  /// Replaces the weights. The optimizer's states stay.
  void assign(const std::vector<tutti::ConstTensorView>& weights);
  /// After assign(), for a run that goes on: the optimizer's states begin anew, and its schedule
  /// counts from `updates`. An optimizer without states goes on as if nothing had happened.
  void begin_at(std::uint64_t updates);

 private:
  struct Entry {
    tutti::Key key;
    tutti::Tensor weight;
    std::vector<tutti::Tensor> states;
  };

  std::shared_ptr<tutti::Optimizer> optimizer_;
  std::vector<Entry> entries_;
  std::uint64_t first_ = 0;    // updates before the states began
  std::uint64_t updates_ = 0;  // since then
};

}  // namespace apps
