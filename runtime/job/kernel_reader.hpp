// SPDX-License-Identifier: Apache-2.0
// Reads other processes' memory through the kernel: process_vm_readv.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "collectives/job/topology.hpp"
#include "collectives/wait/peer_reader.hpp"

namespace tutti {

/// One copy by the kernel, without the peer's help. It is allowed to processes of one user that may
/// trace each other: not across users, where Yama restricts tracing, or where a container's seccomp
/// profile forbids the call.
class KernelReader final : public collectives::PeerReader {
 public:
  /// `processes`: of the node's ranks, as this process numbers them.
  KernelReader(const collectives::Topology& topology, std::vector<pid_t> processes);

  void read(int local_rank, std::span<const Piece> pieces) override;
  [[nodiscard]] std::unique_ptr<collectives::PeerReader> for_group(
      const collectives::Topology& group, std::span<const int> peers) const override;

 private:
  [[noreturn]] void fail(int local_rank, int error) const;

  const collectives::Topology topology_;
  std::vector<pid_t> processes_;
};

/// A number in ordinary memory that a peer must read to show that it can.
struct Probe {
  std::uint64_t address = 0;
  std::uint64_t nonce = 0;
};

/// Reads a peer's probe. Empty if the nonce was there, else why it was not, as the kernel says it.
std::string read_probe(pid_t process, const Probe& probe);

/// "the kernel refuses it (Operation not permitted); Yama restricts ...": what stands in the way of
/// reading other processes here, with the remedy, for an error number of process_vm_readv.
std::string why_not_readable(int error);

}  // namespace tutti
