// SPDX-License-Identifier: Apache-2.0
// A network whose weights live in a key-value store.
//
//   store's replica  --read in place-->  forward and backward  --written in place-->  gradients
//          ^                                                                              |
//          +----------- optimizer, on every rank <- sum over the ranks <- one push -------+
//
// Low-communication training has a second loop: a rank's own copy of the weights is what the
// network reads, and a step changes that copy alone. An outer step pushes how far it has moved:
//
//   replica - copy  --one push-->  sum over the ranks  --outer optimizer-->  replica  --> copy
//
// Source  DiLoCo: Douillard et al., arXiv:2311.08105, 2023, algorithm 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <tutti/kvstore.hpp>

#include "support/local_weights.hpp"
#include "support/mlp.hpp"

namespace apps {

class StoredMlp {
 public:
  /// Makes the keys fc1.weight, fc1.bias, fc2.weight, ... with He's initial weights, on the device
  /// that is also computed on. Collective.
  StoredMlp(tutti::KVStore& store, const std::vector<int>& widths, std::size_t max_batch,
            std::int64_t seed, tutti::Device device);

  /// Trains a copy of the weights from now on, by an optimizer of this rank alone; the store's
  /// optimizer is the outer one. Weights are on the cpu.
  void use_local_weights(std::shared_ptr<tutti::Optimizer> optimizer);

  [[nodiscard]] tutti::Device device() const { return network_.device(); }
  /// The one that takes gradients: the store's, or that of the local weights.
  [[nodiscard]] tutti::Optimizer& optimizer() const {
    return local_ ? local_->optimizer() : store_.optimizer();
  }
  /// The bytes of all weights, and so of a push's gradients.
  [[nodiscard]] std::size_t size_bytes() const;
  /// True if the local weights have moved since the last push: they differ between ranks then.
  [[nodiscard]] bool is_apart() const noexcept { return apart_; }

  /// Computes the gradients of this rank's share of a batch; returns its loss, summed.
  /// The gradients are scaled by the store's loss scale.
  double compute(const Batch& share) {
    return network_.gradients(share, {}, local_ ? 1 : store_.loss_scale());
  }
  /// compute() that begins to push each layer's gradients as soon as they are there. Without local
  /// weights, on a cpu. Collective.
  double compute_and_push(const Batch& share);
  /// Returns when these pushes have updated the weights. Collective.
  void await_pushes();
  /// Updates the local weights by this rank's gradients. Local.
  void update_local_weights();
  /// Sums all layers' gradients over the ranks and updates the weights, in one operation. With
  /// local weights, what is summed is how far they are from the store's; then they are these.
  /// Collective.
  void push();
  /// The local weights begin at the store's, as after `steps` steps, with new states.
  void begin_at(std::uint64_t steps);

  /// How many of images first .. last-1 the store's weights get right.
  int count_correct(const LabelledImages& images, std::size_t first, std::size_t last);

 private:
  [[nodiscard]] std::vector<tutti::ConstTensorView> stored() const;
  /// The network reads these weights from now on.
  void bind(const std::vector<tutti::ConstTensorView>& weights);
  void bind_local();

  tutti::KVStore& store_;
  Mlp network_;
  std::vector<tutti::Key> keys_;
  std::vector<tutti::Tensor> gradients_;  // on a cpu in the store's memory: a push copies nothing
  std::vector<tutti::Pending> pushes_;    // under way
  std::optional<LocalWeights> local_;
  bool apart_ = false;
};

}  // namespace apps
