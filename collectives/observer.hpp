// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tutti::collectives {

/// What can be found out about another rank of this node when it gives no signal.
class Observer {
 public:
  virtual ~Observer() = default;
  /// True if its process has ended.
  [[nodiscard]] virtual bool is_gone(int local_rank) const = 0;
  /// What it does, as far as can be seen: "is stopped (state T); its last call: ...". Empty if
  /// nothing is known.
  [[nodiscard]] virtual std::string describe(int local_rank) const = 0;
};

}  // namespace tutti::collectives
