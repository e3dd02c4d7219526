// SPDX-License-Identifier: Apache-2.0
// What all ranks throw when their calls cannot be carried out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/error.hpp"

#include "collectives/job/topology.hpp"
#include "collectives/wait/node_memory.hpp"

namespace tutti::collectives {

/// What one rank says of its call after a disagreement.
struct RankStatement {
  std::int32_t rank;
  std::uint32_t refused;  ///< 0, or 1 + ErrorCode of what is wrong with this rank's call
  Signature signature;
  char text[kTextBytes];  ///< what is wrong, or the call in words
};

/// What all ranks throw after a disagreement.
struct MismatchReport {
  ErrorCode code;
  std::string text;
  /// All made the same call, of which none was refused, and what they hold differs: nothing to
  /// throw yet. Whoever made the call looks closer.
  bool only_checks_differ = false;
};

/// The sentence that names the ranks and what each called. Statements are in the order of ranks.
MismatchReport find_mismatch(const Topology& topology, std::uint64_t sequence,
                             const std::vector<RankStatement>& statements);

}  // namespace tutti::collectives
