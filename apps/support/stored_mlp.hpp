// SPDX-License-Identifier: Apache-2.0
// A network whose weights live in a key-value store.
//
//   store's replica  --read in place-->  forward and backward  --written in place-->  gradients
//          ^                                                                              |
//          +----------- optimizer, on every rank <- sum over the ranks <- one push -------+
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/kvstore.hpp>

#include "support/mlp.hpp"

namespace apps {

class StoredMlp {
 public:
  /// Makes the keys fc1.weight, fc1.bias, fc2.weight, ... with He's initial weights, on the device
  /// that is also computed on. Collective.
  StoredMlp(tutti::KVStore& store, const std::vector<int>& widths, std::size_t max_batch,
            std::int64_t seed, tutti::Device device);

  [[nodiscard]] Mlp& network() noexcept { return network_; }

  /// Computes the gradients of this rank's share of a batch; returns its loss, summed.
  double compute(const Batch& share) { return network_.gradients(share); }
  /// Sums all layers' gradients over the ranks and updates the weights, in one operation.
  /// Collective.
  void push() { store_.push(keys_, gradients_); }

 private:
  tutti::KVStore& store_;
  Mlp network_;
  std::vector<tutti::Key> keys_;
  std::vector<tutti::Tensor> gradients_;  // on a cpu in the store's memory: a push copies nothing
};

}  // namespace apps
