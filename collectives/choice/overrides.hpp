// SPDX-License-Identifier: Apache-2.0
// TUTTI_ALGORITHMS: the user's overrides of the library's choices.
#pragma once

#include <string_view>

#include "collectives/choice/tuning.hpp"

namespace tutti::collectives {

/// Applies overrides such as "inline-shared=512,exchange=halving" to a tuning. Errors:
/// invalid_argument, with the names and values that exist.
void override_choices(Tuning& tuning, std::string_view overrides);

/// Throws invalid_argument with a text such as "TUTTI_ALGORITHMS: 'exchange=ring': expected ...".
[[noreturn]] void throw_unexpected(std::string_view override_asked, const std::string& expected);

}  // namespace tutti::collectives
