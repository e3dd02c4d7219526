// SPDX-License-Identifier: Apache-2.0
// The error that all ranks throw when their calls do not match.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/error.hpp"

#include "collectives/job/topology.hpp"
#include "collectives/wait/node_memory.hpp"

namespace tutti::collectives {

/// The statement of one rank about its call, after a disagreement.
struct RankStatement {
  std::int32_t rank;
  std::uint32_t refused;  ///< 0, or 1 + the ErrorCode for which this rank refused its call
  Signature signature;
  char text[kTextBytes];  ///< the reason of the refusal, or the call in words
};

/// The error that all ranks throw after a disagreement.
struct MismatchReport {
  ErrorCode code;
  std::string text;
  /// True if all ranks made the same call, none refused it, and only what they hold differs. Then
  /// nothing is thrown yet; the caller examines the difference.
  bool only_checks_differ = false;
};

/// Composes the sentence that names the ranks and the call of each. Statements are in the order of
/// ranks.
MismatchReport find_mismatch(const Topology& topology, std::uint64_t sequence,
                             const std::vector<RankStatement>& statements);

}  // namespace tutti::collectives
