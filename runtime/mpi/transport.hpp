// SPDX-License-Identifier: Apache-2.0
// Messages between nodes by MPI point-to-point.
#pragma once

#include <mpi.h>
#include <vector>

#include "collectives/transport.hpp"

namespace tutti::mpi {

class MpiTransport final : public collectives::Transport {
 public:
  /// `comm` is ours alone and returns errors; its ranks are the group's ranks.
  explicit MpiTransport(MPI_Comm comm);
  /// Requests that are still under way are left to MPI: a cancelled send may never complete.
  ~MpiTransport() override;

  /// Makes allreduce() possible: the ranks of one lane have a communicator of their own, in the
  /// order of nodes. Ranks with lane -1 are in none. Collective, and without a deadline.
  void make_lane(int lane, int node);
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  Request send(int to_rank, int tag, std::span<const std::byte> bytes) override;
  Request receive(int from_rank, int tag, std::span<std::byte> bytes) override;
  Request allreduce(std::byte* data, std::size_t count, DType dtype, ReduceOp op) override;
  bool done(Request request) override;
  void progress() override;
  void notify(int to_rank, const collectives::Notice& notice) noexcept override;
  std::optional<collectives::Notice> poll_notice() override;

 private:
  Request keep(MPI_Request request);
  void listen();

  MPI_Comm comm_;
  MPI_Comm lane_ = MPI_COMM_NULL;
  std::vector<MPI_Request> requests_;
  std::vector<Request> free_;
  /// The notice that is listened for, on the heap, because MPI may outlive this object.
  collectives::Notice* incoming_;
  MPI_Request listening_ = MPI_REQUEST_NULL;
};

}  // namespace tutti::mpi
