// SPDX-License-Identifier: Apache-2.0
// How the processes of a job without an MPI find each other on their host.
//
// Rank 0 listens at a Unix socket whose name all ranks derive from the same variables. The others
// connect to it and say who they are:
//
//   rank 1..n-1 -> rank 0   Card      who I am, and the name of my mailbox
//   rank 0 -> rank 1..n-1   Answer    all have come; or the error that all ranks throw
//   rank 0 -> rank 1..n-1   Row ...   of each rank, in their order: its process and its mailbox
//
// Both ends ask the kernel whose process the other one is. Names are of the abstract namespace, so
// nothing is left behind, and those of mailboxes are random.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

#include "runtime/base/unique_handle.hpp"

namespace tutti::mpi::sockets {

/// Another rank of the job, as this one knows it.
struct Peer {
  pid_t process = 0;  ///< 0: its number means nothing to this process
  std::string mailbox;
};

/// All ranks have met.
struct Job {
  int rank = 0;
  std::vector<Peer> peers;  ///< by rank, this one among them
  FileDescriptor mailbox;   ///< datagrams that ranks send to this one come here
};

/// Meets the other processes that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT speak of, which are
/// all on this host. No deadline if `timeout` is 0.
/// Errors  invalid_argument: the variables say that there are several hosts, or another job meets
///         at this address; communication: a rank has ended; timeout: rank 0 names those that did
///         not come. What rank 0 throws all that have come throw.
Job meet(std::chrono::duration<double> timeout);

/// "rank 3 (host b, pid 47)", or without the number where it means nothing here.
std::string name_of_peer(const std::vector<Peer>& peers, int rank);

}  // namespace tutti::mpi::sockets
