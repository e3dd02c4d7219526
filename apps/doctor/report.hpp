// SPDX-License-Identifier: Apache-2.0
// Findings for people and for programs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/doctor/checks.hpp"

namespace apps::doctor {

/// The findings as text: a line for each, with the remedy below it unless it is ok; `colour` for a
/// terminal.
std::string to_lines(const Findings& findings, bool colour);
/// The number of errors and warnings as text: "2 errors, 1 warning".
std::string verdict(const Findings& findings);
/// The findings and facts as JSON:
/// {"errors": 1, "warnings": 0, "findings": [{level, topic, text, remedy}], "ranks": [facts]}.
std::string to_json(const Findings& findings, const std::vector<RankInfo>& ranks);
/// True if a finding is an error.
bool has_error(const Findings& findings);

}  // namespace apps::doctor
