// SPDX-License-Identifier: Apache-2.0
// "Did you mean ...?"
#pragma once

#include <string>
#include <vector>

namespace tutti {

/// The candidate with the smallest edit distance (Levenshtein); the first of equals.
std::string nearest_name(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace tutti
