// SPDX-License-Identifier: Apache-2.0
// A pull of rows: this rank's own, from tables and to tensors on the host or on GPUs.
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

  /// After a failure: to free what a stream uses would wait for the stream.
  void leak_until_exit() { copies_.leak_until_exit(); }

 private:
  void copy_rows(const Entry& entry, std::span<const std::int64_t> ids, RowSparse& to);
  void gather(const Entry& entry, std::span<const std::int64_t> ids, std::byte* rows);

  Group& group_;
  DeviceCopies copies_;
};

}  // namespace tutti
