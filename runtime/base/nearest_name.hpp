// SPDX-License-Identifier: Apache-2.0
// nearest_name: the suggestion in "did you mean ...?"
#pragma once

#include <string>
#include <vector>

namespace tutti {

/// Returns the candidate that `name` most likely means, ignoring case; the first one of equals.
/// Abbreviations are tried first: the initials of a candidate's words ("lr" for learning_rate),
/// then the beginning of a candidate ("eps" for epsilon). Otherwise it is the candidate with the
/// smallest edit distance (Levenshtein).
std::string nearest_name(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace tutti
