// SPDX-License-Identifier: Apache-2.0
// A pull of rows of this rank's replicas, from tables and to tensors on the host or on GPUs.
#pragma once

#include <cstdint>
#include <span>

#include "tutti/arguments.hpp"
#include "tutti/row_sparse.hpp"

#include "runtime/job/group.hpp"
#include "runtime/store/core/key_table.hpp"
#include "runtime/store/device/device_copies.hpp"

namespace tutti {

class RowPull {
 public:
  explicit RowPull(Group& group) : group_(group) {}

  /// KVStore::row_sparse_pull(): checks everything, then copies, with one launch for each output
  /// whose table is on a GPU. Returns the bytes of the rows.
  std::uint64_t run(const KeyTable& table, const Keys& keys, const RowSparseOutputs& outputs,
                    const Values& row_ids);

  /// Keeps memory of streams until the process ends, after a failure: freeing it would wait for the
  /// streams.
  void leak_until_exit() { copies_.leak_until_exit(); }

 private:
  void copy_rows(const Entry& entry, std::span<const std::int64_t> ids, RowSparse& to);
  void gather(const Entry& entry, std::span<const std::int64_t> ids, std::byte* rows);

  Group& group_;
  DeviceCopies copies_;
};

}  // namespace tutti
