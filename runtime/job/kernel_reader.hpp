// SPDX-License-Identifier: Apache-2.0
// KernelReader: reads other processes' memory by process_vm_readv.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "collectives/job/topology.hpp"
#include "collectives/wait/peer_reader.hpp"

namespace tutti {

/// The kernel makes a single copy, without the peer's help. It allows that to processes of one user
/// that may trace each other: not across users, nor where Yama restricts tracing or a container's
/// seccomp profile forbids the call.
class KernelReader final : public collectives::PeerReader {
 public:
  /// `processes`: of the node's ranks, by their PIDs in this process's namespace.
  KernelReader(const collectives::Topology& topology, std::vector<pid_t> processes);

  void read(int local_rank, std::span<const Piece> pieces) override;
  [[nodiscard]] std::unique_ptr<collectives::PeerReader> for_group(
      const collectives::Topology& group, std::span<const int> peers) const override;

 private:
  [[noreturn]] void fail(int local_rank, int error) const;

  const collectives::Topology topology_;
  std::vector<pid_t> processes_;
};

/// A number in ordinary memory, which a peer reads to prove that it can.
struct Probe {
  std::uint64_t address = 0;
  std::uint64_t nonce = 0;
};

/// Reads a peer's probe. Returns an empty text if the number was right, otherwise the kernel's
/// reason.
std::string read_probe(pid_t process, const Probe& probe);

/// Returns the reason, with the remedy, why other processes cannot be read here, such as "the
/// kernel refuses it (Operation not permitted); Yama restricts ...". `error` is that of
/// process_vm_readv.
std::string why_not_readable(int error);

}  // namespace tutti
