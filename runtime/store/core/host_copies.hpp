// SPDX-License-Identifier: Apache-2.0
// Keys on GPUs as copies in the host's memory, for what is done on the host alone: files and
// digests.
#pragma once

#include <span>
#include <vector>

#include "runtime/job/group.hpp"
#include "runtime/store/core/key_table.hpp"

namespace tutti {

/// While it lives, the replicas and states of these entries that are on GPUs are copies in the
/// host's memory. What was on the GPUs is back there when it ends, unchanged unless write_back()
/// was called. Local.
class HostCopies {
 public:
  /// Errors  out_of_memory.
  HostCopies(Group& group, std::span<Entry* const> entries);
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  /// Takes what the copies are now to the GPUs, with states that have come or gone.
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

}  // namespace tutti
