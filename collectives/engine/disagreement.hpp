// SPDX-License-Identifier: Apache-2.0
// Disagreement: all ranks throw the same error if their calls differ, or if one of them refuses its
// call.
#pragma once

#include <string>
#include <vector>

#include "tutti/error.hpp"

#include "collectives/node/call.hpp"
#include "collectives/wait/mismatch.hpp"
#include "collectives/wait/transport.hpp"

namespace tutti::collectives {

/// Replaces the movement of data in a call that cannot be carried out.
///
///   every rank         writes its statement: its call in words, or the reason of its refusal
///   first of the node  swaps its node's statements with those of all other nodes, finds the
///                      differences, and writes the report, which all ranks of its node throw
class Disagreement {
 public:
  /// `transport` may be null if there is only one node.
  Disagreement(Call& call, Transport* transport) : call_(call), transport_(transport) {}

  /// States this rank's call. Returns true if there is nothing to throw, see
  /// MismatchReport::only_checks_differ; otherwise the caller calls throw_report().
  [[nodiscard]] bool explain() { return find(0, call_.operation().describe()); }
  /// States why this rank refuses its call. The caller then calls throw_report().
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
