// SPDX-License-Identifier: Apache-2.0
// Facts grouped by host, and words for messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/doctor/facts.hpp"
#include "support/bytes_text.hpp"

namespace apps::doctor {

struct Host {
  std::string name;
  std::vector<const Facts*> ranks;
  [[nodiscard]] const Facts& first() const { return *ranks.front(); }
};

/// In the order of their first ranks.
std::vector<Host> by_host(const std::vector<Facts>& ranks);

/// "1.5 GiB".
inline std::string size_text(std::uint64_t bytes) { return bytes_text(static_cast<double>(bytes)); }
/// "0, 1 and 5".
std::string list_text(const std::vector<std::string>& words);
/// "rank 3" or "ranks 0 and 3".
std::string ranks_text(const std::vector<const Facts*>& ranks);

}  // namespace apps::doctor
