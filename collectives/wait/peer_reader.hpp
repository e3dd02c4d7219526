// SPDX-License-Identifier: Apache-2.0
// Reading what another rank of the node keeps in memory of its own, which is mapped nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "collectives/job/topology.hpp"

namespace tutti::collectives {

/// In a job the kernel copies from one process to the other (runtime/job/kernel_reader.hpp).
class PeerReader {
 public:
  struct Piece {
    std::byte* to;
    std::uint64_t from;  ///< an address in the peer's process
    std::size_t bytes;
  };

  virtual ~PeerReader() = default;

  /// Copies pieces of a local rank's memory here. Errors: communication, which names the rank.
  virtual void read(int local_rank, std::span<const Piece> pieces) = 0;

  /// A reader for a group of some of these ranks: `peers` are its local ranks, as they are numbered
  /// here.
  [[nodiscard]] virtual std::unique_ptr<PeerReader> for_group(const Topology& group,
                                                              std::span<const int> peers) const = 0;
};

}  // namespace tutti::collectives
