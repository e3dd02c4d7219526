// SPDX-License-Identifier: Apache-2.0
// Functions on all settings. The list of settings is in settings.cpp.
#pragma once

#include <string>

#include "tutti/settings.hpp"

namespace tutti {

/// Returns the settings that must be equal on all ranks, one line "TUTTI_TIMEOUT=300" each.
[[nodiscard]] std::string settings_to_compare(const Settings& settings);

/// Errors: invalid_argument if a value is outside its limits, whether the program has set it, or
/// from_environment() could not read it. The text has the variable and the expected values.
void require_valid(const Settings& settings);

}  // namespace tutti
