// SPDX-License-Identifier: Apache-2.0
// Copies of values on GPUs in the host's memory: of keys, for files and digests, which are made on
// the host, and of pushed values.
#pragma once

#include <span>
#include <vector>

#include "runtime/job/group.hpp"
#include "runtime/store/core/key_table.hpp"

namespace tutti {

/// While an object lives, the replicas and states of these entries that are on GPUs are copies in
/// the host's memory. Afterwards they are on the GPUs again, unchanged unless write_back() was
/// called. Local.
class HostCopies {
 public:
  /// Errors  out_of_memory.
  HostCopies(Group& group, std::span<Entry* const> entries);
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  /// Copies the present values back to the GPUs, with states that were added or removed.
  void write_back();

 private:
  struct Moved {
    Entry* entry;
    Tensor replica;
    std::vector<Tensor> states;
  };
  Group& group_;
  std::vector<Moved> moved_;
};

/// Values in memory that the host can read. Local.
class ReadableValues {
 public:
  explicit ReadableValues(Group& group) : group_(group) {}

  /// The value itself, or a copy of one on a GPU, made behind the work in the GPU's stream. Waits
  /// for that copy, which lives until clear(). Errors: out_of_memory, timeout, communication (the
  /// group has failed).
  [[nodiscard]] ConstTensorView take(const ConstTensorView& value);
  void clear() { copies_.clear(); }

 private:
  Group& group_;
  std::vector<Tensor> copies_;
};

}  // namespace tutti
