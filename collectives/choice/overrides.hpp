// SPDX-License-Identifier: Apache-2.0
// TUTTI_ALGORITHMS: what a user says of the choices that the library makes.
#pragma once

#include <string_view>

#include "collectives/choice/tuning.hpp"

namespace tutti::collectives {

/// Reads overrides into a tuning: "inline-shared=512,exchange=halving".
/// Errors  invalid_argument, with the names and values that exist.
void override_choices(Tuning& tuning, std::string_view overrides);

/// Errors  invalid_argument, always: "TUTTI_ALGORITHMS: 'exchange=ring': expected ...".
[[noreturn]] void throw_unexpected(std::string_view override_asked, const std::string& expected);

}  // namespace tutti::collectives
