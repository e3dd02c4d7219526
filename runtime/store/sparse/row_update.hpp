// SPDX-License-Identifier: Apache-2.0
// Updates by the merged rows of a push: they are assigned, or given to an optimizer or an updater.
#pragma once

#include <span>

#include "runtime/job/group.hpp"
#include "runtime/store/core/updates.hpp"
#include "runtime/store/sparse/rows.hpp"

namespace tutti {

/// Errors  invalid_argument: the rule cannot update rows of this key.
void require_rows_rule(const UpdateRule& rule, const Entry& entry);

/// One push's update of one key on the cpu: see DeviceRows for keys on GPUs. The entry has its
/// states of an optimizer.
struct RowUpdate {
  Group& group;
  const UpdateRule& rule;
  Entry& entry;
  std::uint64_t most_updates;  ///< the largest update count of any key, this push included

  /// Updates the rows. `found` has the rows of all ranks, sorted by id, then by rank. An exception
  /// of an updater fails the group. Counts no updates.
  void run(std::span<const FoundRow> found) const;

 private:
  void assign(std::span<const FoundRow> found) const;
  template <class Real>
  void optimize(const Optimizer& optimizer, std::span<const FoundRow> found) const;
  void call_updater(std::span<const FoundRow> found) const;
};

}  // namespace tutti
