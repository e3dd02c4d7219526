// SPDX-License-Identifier: Apache-2.0
// MpiTransport: messages between nodes by MPI point-to-point. A group on one node sends none: the
// thread that made it drives the program's own messages while it waits, and no other thread calls
// MPI for it.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "collectives/wait/transport.hpp"
#include "runtime/mpi/plugin/calls.hpp"

namespace tutti::mpi {

class MpiTransport final : public collectives::Transport {
 public:
  /// `comm` belongs to the library and returns errors; its ranks are the group's ranks. `number` is
  /// that of the group among those that have had this communicator.
  MpiTransport(const Comm& comm, int num_nodes, int number = 0);
  /// Returns how many groups can have one communicator, because MPI limits the tags of messages.
  [[nodiscard]] static int most_groups();
  /// Leaks pending requests: a cancelled send may never complete.
  ~MpiTransport() override;

  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  /// Stops sending notices, because all ranks end the group in one call, which then frees the
  /// communicator. A message that arrives later would belong to another communicator with the same
  /// number, and MPIs crash (Open MPI 4.1, in mca_pml_ob1_add_comm) or end the job.
  void mute() noexcept { is_mute_ = true; }

  /// Frees the communicator of make_lane(), if there is one, whose ranks all call this, as MPI
  /// asks. Where they do not end their group in one call, it is left to MPI_Finalize.
  void free_lane() noexcept;

  /// Allows any waiting thread to call MPI, because every call of the group is made inside an MPI
  /// call of the program.
  void let_callers_progress() noexcept { lets_callers_progress_ = true; }

  [[nodiscard]] std::unique_ptr<Transport> for_group(const std::vector<int>& members, int number,
                                                     int num_nodes) const override;
  void make_lane(const std::vector<int>& ranks) override;
  Request send(int to_rank, int tag, std::span<const std::byte> bytes) override;
  Request receive(int from_rank, int tag, std::span<std::byte> bytes) override;
  Request allreduce(std::byte* data, std::size_t count, DType dtype, ReduceOp op) override;
  bool done(Request request) override;
  void progress() override;
  [[nodiscard]] bool may_progress() const override;
  void notify(int to_rank, const collectives::Notice& notice) noexcept override;
  std::optional<collectives::Notice> poll_notice() override;

 private:
  /// A notice that MPI may still read.
  struct SentNotice {
    std::unique_ptr<std::vector<std::byte>> bytes;
    mpi::Request request;
  };

  /// The ranks of a group in the communicator, and the thread that may call MPI for a group on one
  /// node.
  struct Members {
    std::vector<int> ranks{};  ///< empty for all ranks of the communicator
    int number = 0;
    int num_nodes = 1;
    std::thread::id maker{};
  };
  MpiTransport(const Comm& comm, Members members);

  Request keep(const mpi::Request& request);
  void forget_sent_notices() noexcept;
  void listen();

  [[nodiscard]] bool has_messages() const { return members_.num_nodes > 1; }
  [[nodiscard]] int in_comm(int rank) const {
    return members_.ranks.empty() ? rank : members_.ranks[rank];
  }

  const Calls& mpi_;
  Comm comm_;
  Members members_;
  int first_tag_;  ///< the first of the group's tags
  Comm lane_;
  bool has_lane_ = false;
  bool is_mute_ = false;
  bool lets_callers_progress_ = false;
  std::vector<mpi::Request> requests_;
  std::vector<Request> free_;
  std::vector<SentNotice> sent_notices_;
  /// The next notice to be received, on the heap, because MPI may outlive this object.
  collectives::Notice* incoming_ = nullptr;
  mpi::Request listening_;
};

}  // namespace tutti::mpi
