// SPDX-License-Identifier: Apache-2.0
// Functions over all settings. The list of settings is in settings.cpp.
#pragma once

#include <string>

#include "tutti/settings.hpp"

namespace tutti {

/// The settings that must be equal on all ranks, a line "TUTTI_TIMEOUT=300" each.
[[nodiscard]] std::string settings_to_compare(const Settings& settings);

/// Errors  invalid_argument: a value is outside its limits, whether a program has filled it in or
///         from_environment() could not read it. The text has the variable and what is expected.
void require_valid(const Settings& settings);

}  // namespace tutti
