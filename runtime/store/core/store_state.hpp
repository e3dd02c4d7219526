// SPDX-License-Identifier: Apache-2.0
// StoreState: the state of a store that its parts share.
#pragma once

#include <memory>

#include "runtime/job/group.hpp"
#include "runtime/store/core/gradient_compression.hpp"
#include "runtime/store/core/key_table.hpp"
#include "runtime/store/core/updates.hpp"

namespace tutti {

/// References to a store's group, keys and settings, for its pushes and its files.
struct StoreState {
  const std::shared_ptr<Group>& group;
  KeyTable& table;
  const UpdateRule& rule;
  const GradientCompression& compression;
};

}  // namespace tutti
