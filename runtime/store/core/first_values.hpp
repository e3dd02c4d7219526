// SPDX-License-Identifier: Apache-2.0
// The first values of new keys.
#pragma once

#include <span>

#include "runtime/job/group.hpp"
#include "runtime/store/core/key_table.hpp"
#include "runtime/store/core/resolve.hpp"

namespace tutti {

/// Gives new keys rank 0's values; the other ranks' values may be anything of the same shape and
/// dtype. values[i] belongs to entries[i]. `call` is the call that the ranks agree on, for example
/// "init". Collective. Errors: mismatch if the ranks' keys, shapes or dtypes differ; out_of_memory.
void broadcast_first_values(Group& group, const char* call, std::span<Entry> entries,
                            std::span<const KeyGroup<ConstTensorView>> values);

}  // namespace tutti
