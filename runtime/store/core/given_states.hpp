// SPDX-License-Identifier: Apache-2.0
// Replaces an optimizer's states by those that the program gives.
#pragma once

#include <span>

#include "tutti/optimizer_states.hpp"

#include "runtime/job/group.hpp"
#include "runtime/store/core/key_table.hpp"
#include "runtime/store/core/updates.hpp"

namespace tutti {

/// Carries out set_optimizer_states(). Collective. Errors: those of that call.
void take_states(Group& group, KeyTable& table, const UpdateRule& rule,
                 std::span<const KeyStates> given);

}  // namespace tutti
