// SPDX-License-Identifier: Apache-2.0
// The states of a store's optimizer, key by key, for checkpoints in formats of other libraries.
// KVStore::save() and load() are for a whole store.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/export.h"
#include "tutti/key.hpp"
#include "tutti/kvstore.hpp"
#include "tutti/tensor.hpp"

namespace tutti {

struct KeyStates {
  Key key;
  std::uint64_t updates = 0;  ///< pushes since the optimizer was set
  /// The states, each of the key's shape, in the optimizer's order; float32 for 16-bit weights, and
  /// the float32 weight last. None before the first update.
  std::vector<ConstTensorView> states{};
};

/// A key's states, without a copy: valid until the next push of the key. Local.
/// Errors  invalid_argument: unknown key.
TUTTI_API KeyStates optimizer_states(const KVStore& store, const Key& key);

/// Replaces the states and counts of these keys by copies; the float32 weight of a 16-bit one may
/// be left out, and begins as the weight then. Loss scale and other keys stay. Collective: all
/// ranks give the same keys, counts and elements, on the cpu, and compare them. Errors
/// invalid_argument: an unknown key, other shapes, dtypes or numbers of states than the
///         optimizer has, or no optimizer; mismatch. Nothing has changed then.
TUTTI_API void set_optimizer_states(KVStore& store, std::span<const KeyStates> given);

}  // namespace tutti
