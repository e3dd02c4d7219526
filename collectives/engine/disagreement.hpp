// SPDX-License-Identifier: Apache-2.0
// Disagreement: what ranks do instead of moving data when their calls differ, or one of them
// refuses its call.
#pragma once

#include <string>
#include <vector>

#include "tutti/error.hpp"

#include "collectives/node/call.hpp"
#include "collectives/wait/mismatch.hpp"
#include "collectives/wait/transport.hpp"

namespace tutti::collectives {

/// Makes all ranks throw the same error.
///
///   every rank         writes its statement: the call in words, or why it refuses it
///   first of the node  swaps its node's statements with those of all other nodes, finds what they
///                      differ in, and writes the report, which its node's ranks throw
class Disagreement {
 public:
  /// `transport` may be null if there is one node.
  Disagreement(Call& call, Transport* transport) : call_(call), transport_(transport) {}

  /// States what this rank called. True if there is nothing to throw: see
  /// MismatchReport::only_checks_differ. If not, throw_report() follows.
  [[nodiscard]] bool explain() { return find(0, call_.operation().describe()); }
  /// States why this rank refuses its call. throw_report() follows.
  void explain_refusal(ErrorCode code, const std::string& why) {
    static_cast<void>(find(static_cast<std::uint32_t>(code) + 1, why));
  }
  [[noreturn]] void throw_report() const;

 private:
  [[nodiscard]] bool find(std::uint32_t refused, const std::string& text);
  [[nodiscard]] std::vector<RankStatement> of_this_node() const;
  [[nodiscard]] std::vector<RankStatement> of_all(const std::vector<RankStatement>& own) const;

  Call& call_;
  Transport* transport_;
};

}  // namespace tutti::collectives
