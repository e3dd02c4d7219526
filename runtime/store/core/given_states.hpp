// SPDX-License-Identifier: Apache-2.0
// An optimizer's states from the program, in place of those that the store has.
#pragma once

#include <span>

#include "tutti/optimizer_states.hpp"

#include "runtime/job/group.hpp"
#include "runtime/store/core/key_table.hpp"
#include "runtime/store/core/updates.hpp"

namespace tutti {

/// Collective. Errors: those of set_optimizer_states().
void take_states(Group& group, KeyTable& table, const UpdateRule& rule,
                 std::span<const KeyStates> given);

}  // namespace tutti
