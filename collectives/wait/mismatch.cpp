// SPDX-License-Identifier: Apache-2.0
#include "collectives/wait/mismatch.hpp"

#include <algorithm>
#include <string_view>

namespace tutti::collectives {

namespace {

/// Longest sentence about ranks that are not named.
constexpr std::size_t kRoomForRest = 64;

/// Ranks that made the same statement. Parties are ordered by their first rank.
struct Party {
  const RankStatement* statement;
  std::vector<int> ranks;
};

std::vector<Party> parties_of(const std::vector<RankStatement>& statements) {
  std::vector<Party> parties;
  for (const RankStatement& statement : statements) {
    const auto same = std::find_if(parties.begin(), parties.end(), [&](const Party& party) {
      return party.statement->refused == statement.refused &&
             std::string_view(party.statement->text) == statement.text;
    });
    if (same == parties.end()) {
      parties.push_back({&statement, {statement.rank}});
    } else {
      same->ranks.push_back(statement.rank);
    }
  }
  return parties;
}

/// True if all ranks made the same call without refusing it, and only the checks of what they hold
/// differ.
bool only_checks_differ(const std::vector<RankStatement>& statements) {
  const Signature& first = statements.front().signature;
  bool all_equal = true;
  for (const RankStatement& statement : statements) {
    if (!(statement.signature.without_check() == first.without_check())) return false;
    all_equal = all_equal && statement.signature == first;
  }
  return !all_equal;
}

}  // namespace

MismatchReport find_mismatch(const Topology& topology, std::uint64_t sequence,
                             const std::vector<RankStatement>& statements) {
  const auto parties = parties_of(statements);
  const auto refused = std::find_if(parties.begin(), parties.end(), [](const Party& party) {
    return party.statement->refused != 0;
  });
  if (refused != parties.end()) {
    const auto code = static_cast<ErrorCode>(refused->statement->refused - 1);
    return {code, names_of(topology, refused->ranks) + ": " + refused->statement->text};
  }
  if (only_checks_differ(statements)) {
    return {ErrorCode::divergence, "call " + std::to_string(sequence) + ": the replicas differ",
            /*only_checks_differ=*/true};
  }
  const std::string call = "call " + std::to_string(sequence) + of_group(topology);
  if (parties.size() == 1) {
    return {ErrorCode::mismatch,
            call + ": all ranks made the same call (" + parties.front().statement->text +
                ") but with other arguments than it shows, such as an updater's settings, values "
                "or the sizes of blocks; nothing was changed"};
  }
  const std::string advice =
      "every rank must make the same calls in the same order; nothing was changed";
  std::string text = "ranks disagree in " + call + ": ";
  auto left_out = static_cast<std::size_t>(topology.size);
  for (const Party& party : parties) {
    const std::string words =
        names_of(topology, party.ranks) + " called " + party.statement->text + "; ";
    const bool fits = text.size() + words.size() + kRoomForRest + advice.size() <= kReportBytes;
    if (!fits && &party != &parties.front()) break;
    text += words;
    left_out -= party.ranks.size();
  }
  if (left_out == 1) text += "one more rank made another call; ";
  if (left_out > 1) text += std::to_string(left_out) + " more ranks made other calls; ";
  return {ErrorCode::mismatch, text + advice};
}

}  // namespace tutti::collectives
