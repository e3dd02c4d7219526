// SPDX-License-Identifier: Apache-2.0
// Weights whose every element is known, in a store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/kvstore.hpp>

#include "apps/checkpoint/options.hpp"

namespace apps::checkpoint {

class Weights {
 public:
  /// Puts them into the store. Collective.
  Weights(tutti::KVStore& kv, const Options& options);

  /// Makes all elements zero, with one push. Collective.
  void forget(tutti::KVStore& kv) const;

  /// Elements of this rank's replica that are not what was put there. Local.
  [[nodiscard]] std::int64_t wrong(const tutti::KVStore& kv) const;

  [[nodiscard]] std::size_t bytes() const { return keys_.size() * count_ * sizeof(float); }

 private:
  std::size_t count_;  ///< elements of one key
  std::vector<tutti::Key> keys_;
};

}  // namespace apps::checkpoint
