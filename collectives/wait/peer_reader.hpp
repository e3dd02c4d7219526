// SPDX-License-Identifier: Apache-2.0
// PeerReader: reads memory of another rank of the node that is not mapped in this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "collectives/job/topology.hpp"

namespace tutti::collectives {

/// Interface for reading. In a job the kernel copies between the processes
/// (runtime/job/kernel_reader.hpp).
class PeerReader {
 public:
  struct Piece {
    std::byte* to;
    std::uint64_t from;  ///< an address in the peer's process
    std::size_t bytes;
  };

  virtual ~PeerReader() = default;

  /// Copies pieces of a local rank's memory to this rank. Errors: communication, which names the
  /// rank.
  virtual void read(int local_rank, std::span<const Piece> pieces) = 0;

  /// Returns a reader for a group of some of these ranks. `peers` are the local ranks of its
  /// members, as they are numbered in this reader.
  [[nodiscard]] virtual std::unique_ptr<PeerReader> for_group(const Topology& group,
                                                              std::span<const int> peers) const = 0;
};

}  // namespace tutti::collectives
