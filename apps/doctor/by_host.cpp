// SPDX-License-Identifier: Apache-2.0
#include "apps/doctor/by_host.hpp"

#include <algorithm>

namespace apps::doctor {

std::vector<Host> by_host(const std::vector<Facts>& ranks) {
  std::vector<Host> hosts;
  for (const Facts& facts : ranks) {
    auto host = std::ranges::find(hosts, facts.host, &Host::name);
    if (host == hosts.end()) host = hosts.insert(host, {facts.host, {}});
    host->ranks.push_back(&facts);
  }
  return hosts;
}

std::string list_text(const std::vector<std::string>& words) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i == kMost) return text + " and " + std::to_string(words.size() - kMost) + " more";
    if (i > 0) text += i + 1 == words.size() ? " and " : ", ";
    text += words[i];
  }
  return text;
}

std::string ranks_text(const std::vector<const Facts*>& ranks) {
  std::vector<std::string> numbers;
  for (const Facts* facts : ranks) numbers.push_back(std::to_string(facts->rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + list_text(numbers);
}

}  // namespace apps::doctor
