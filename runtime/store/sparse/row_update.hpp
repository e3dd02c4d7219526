// SPDX-License-Identifier: Apache-2.0
// What happens to the merged rows of a push: assigned, given to an optimizer, or to an updater.
#pragma once

#include <span>

#include "runtime/job/group.hpp"
#include "runtime/store/core/updates.hpp"
#include "runtime/store/sparse/rows.hpp"

namespace tutti {

/// Errors  invalid_argument: the rule cannot update rows of this key.
void require_rows_rule(const UpdateRule& rule, const Entry& entry);

/// One push's update of one key on the cpu: see DeviceRows for keys on GPUs. The states of an
/// optimizer must be there.
struct RowUpdate {
  Group& group;
  const UpdateRule& rule;
  Entry& entry;
  std::uint64_t most_updates;  ///< the largest count of any key, this push included

  /// `found` has the rows of all ranks, sorted by id, then by rank. What an updater throws fails
  /// the group. Counts nothing.
  void run(std::span<const FoundRow> found) const;

 private:
  void assign(std::span<const FoundRow> found) const;
  template <class Real>
  void optimize(const Optimizer& optimizer, std::span<const FoundRow> found) const;
  void call_updater(std::span<const FoundRow> found) const;
};

}  // namespace tutti
