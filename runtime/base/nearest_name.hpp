// SPDX-License-Identifier: Apache-2.0
// "Did you mean ...?"
#pragma once

#include <string>
#include <vector>

namespace tutti {

/// The candidate that `name` most likely stands for, in whatever case; the first of equals. An
/// abbreviation comes first: the initials of a candidate's words ("lr" for learning_rate), then the
/// beginning of a candidate ("eps" for epsilon). Else it is the smallest edit distance
/// (Levenshtein).
std::string nearest_name(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace tutti
