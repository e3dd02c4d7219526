// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other about files.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/communicator.hpp"

namespace tutti::checkpoint {

/// The text of rank `root` on every rank; what `make` throws there is thrown by all. Collective.
std::string text_of(Communicator& ranks, int root, const std::function<std::string()>& make);
inline std::string text_of_first(Communicator& ranks, const std::function<std::string()>& make) {
  return text_of(ranks, 0, make);
}

/// The ranks that pass true, ascending. Collective.
std::vector<int> ranks_where(Communicator& ranks, bool mine);

/// Runs `body`, and puts `place` in front of the text of an Error that it throws.
void in_place(const std::string& place, const std::function<void()>& body);

}  // namespace tutti::checkpoint
