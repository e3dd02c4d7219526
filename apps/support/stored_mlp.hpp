// SPDX-License-Identifier: Apache-2.0
// A network whose weights live in a key-value store.
//
//   store's replica  --read in place-->  forward and backward  --written in place-->  gradients
//          ^                                                                              |
//          +----------- optimizer, on every rank <- sum over the ranks <- one push -------+
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tutti/kvstore.hpp>

#include "support/mlp.hpp"

namespace apps {

class StoredMlp {
 public:
  /// Makes the keys fc1.weight, fc1.bias, fc2.weight, ... with He's initial weights, on the device
  /// that also computes. Collective.
  StoredMlp(tutti::KVStore& store, const std::vector<int>& widths, std::size_t max_batch,
            std::int64_t seed, tutti::Device device);

  [[nodiscard]] tutti::Device device() const { return network_.device(); }

  /// Computes the gradients of this rank's share of a batch; returns its loss, summed.
  /// The gradients are scaled by the store's loss scale.
  double compute(const Batch& share) { return network_.gradients(share, {}, store_.loss_scale()); }
  /// Like compute(), but begins to push each layer's gradients as soon as they are complete. On a
  /// CPU. Collective.
  double compute_and_push(const Batch& share);
  /// Returns when these pushes have updated the weights. Collective.
  void await_pushes();
  /// Sums all layers' gradients over the ranks and updates the weights, in one operation.
  /// Collective.
  void push() { store_.push(keys_, gradients_); }

  /// The number of images first .. last-1 that the network gets right.
  int count_correct(const LabelledImages& images, std::size_t first, std::size_t last) {
    return network_.count_correct(images, first, last);
  }

 private:
  /// Makes the network read the store's weights, and write gradients, in place.
  void bind();

  tutti::KVStore& store_;
  Mlp network_;
  std::vector<tutti::Key> keys_;
  // On a CPU in the store's memory, where a push copies nothing.
  std::vector<tutti::Tensor> gradients_;
  std::vector<tutti::Pending> pushes_;  // under way
};

}  // namespace apps
