// SPDX-License-Identifier: Apache-2.0
// Collectives without keys, over all ranks of the job or a group of them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/export.h"
#include "tutti/pending.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/settings.hpp"
#include "tutti/statistics.hpp"
#include "tutti/tensor.hpp"

namespace tutti {

class UserReductions;
class Group;  // the implementation: runtime/job/group.hpp
namespace gpus {
class SumOverRanks;
}

/// A rank with which Communicator::meet() would meet.
struct MeetingPartner {
  int rank = 0;
  bool has_news = false;  ///< this rank has something to tell it
};

/// The ranks of an mpirun job, or a group of them.
///
/// Order   every member function marked "collective" is called by all ranks of the communicator, in
///         the same order, with equal shapes, dtypes and operations. One thread uses a communicator
///         at a time. A rank may be in many groups, and use them in turn; ranks that share several
///         must use these in an order in which no rank waits for another in a circle.
/// Errors  a call that is invalid on one rank, or that differs between ranks, throws on all ranks
///         (invalid_argument, mismatch) and leaves everything as it was. communication and timeout
///         fail the communicator for good.
class TUTTI_API Communicator {
 public:
  /// All ranks of the job; a process that was not started by mpirun is a job of one rank.
  /// Initialises MPI if the program has not. Collective.
  static Communicator world(const Settings& settings = Settings::from_environment());

  /// This process alone. Never touches MPI.
  static Communicator self(const Settings& settings = Settings::from_environment());

  /// The group of all ranks that give the same colour, numbered in the order of (key, rank): rows
  /// and columns of a grid, for example. Groups share this communicator's memory: a tensor from
  /// allocate() of one is in node-shared memory for all. They outlive it. A group is destroyed as
  /// any communicator, and its memory goes back when all its ranks of the node have done so.
  /// Results have the bits of a job of these ranks alone. Error messages give each rank's number in
  /// the group and in the job. Statistics and metrics that settings ask for are the job's
  /// alone; a group has its own statistics().
  /// Order   collective over this communicator. One thread of a process makes groups at a time.
  /// Errors  on all ranks, after which nothing has changed: invalid_argument, for settings that do
  ///         not fit the group; out_of_memory; mismatch.
  [[nodiscard]] Communicator split(int color, int key = 0) const;

  /// The group of these ranks of this communicator, in this order; nothing on the others, which
  /// take part in the call all the same. All ranks give the same list. Otherwise as split().
  /// Errors  also invalid_argument: an empty list, a number that is no rank, a rank that is named
  ///         twice.
  [[nodiscard]] std::optional<Communicator> subgroup(std::span<const int> ranks) const;

  /// The group of subgroup(), made by its ranks alone, as by MPI_Comm_create_group: no other rank
  /// takes part. They tell each other what they need by messages, 2 log2 P of them in a row.
  /// Order   collective over the listed ranks, which give the same list.
  /// Errors  invalid_argument, on this rank alone: as subgroup(), or this rank is not listed. On
  ///         all listed ranks, after which nothing has changed: out_of_memory, and settings that
  ///         do not fit the group.
  [[nodiscard]] Communicator create_group(std::span<const int> ranks) const;

  explicit Communicator(std::shared_ptr<Group> group);

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  /// This rank's rank in the job that the group comes from.
  [[nodiscard]] int job_rank() const noexcept;
  [[nodiscard]] int node() const noexcept;  ///< index of this rank's node
  [[nodiscard]] int num_nodes() const noexcept;
  [[nodiscard]] int local_rank() const noexcept;  ///< rank within the node
  [[nodiscard]] int local_size() const noexcept;

  /// The algorithms that carry this communicator's calls, as text, a line per case: by where the
  /// data lies and up to which size, then what has been learnt so far. TUTTI_ALGORITHMS overrides
  /// them. Local.
  [[nodiscard]] std::vector<std::string> algorithms() const;
  /// True while there are ways to try for calls like the last one that moved data: see
  /// Settings::tuning. Local; the same on all ranks after the same calls.
  [[nodiscard]] bool is_learning() const;
  /// The ways learnt so far, as the text of a file for TUTTI_TUNING. Local.
  [[nodiscard]] std::string learnt_tuning() const;

  /// The reason, from the kernel, why the ranks of this node cannot read each other's ordinary
  /// memory, with the remedy. Some calls then take longer. Empty if they can, or if the node has
  /// one rank. Local.
  [[nodiscard]] std::string why_unreadable() const;

  /// A tensor in node-shared memory, which collectives read and write without copies. Not
  /// collective. Its elements are zero. Errors: out_of_memory, with what was asked and available.
  [[nodiscard]] Tensor allocate(Shape shape, DType dtype = DType::float32);

  /// Reduces `input` over all ranks into `output` on every rank. Collective. In place if both are
  /// the same tensor. The order of summation is the canonical tree over ranks: the left operand is
  /// always the lower ranks, the left subtree the largest power of two below the number of ranks.
  void allreduce(const ConstTensorView& input, const TensorView& output,
                 ReduceOp op = ReduceOp::sum);
  void allreduce(const TensorView& tensor, ReduceOp op = ReduceOp::sum) {
    allreduce(tensor, tensor, op);
  }

  /// Reduces with an operation of the program's own. If it is elementwise, each rank combines a
  /// share of the elements; otherwise rank 0 combines all. Between the two data moves the ranks
  /// agree that no operation threw. If it is UserOp::pure, few bytes are moved once.
  /// Errors  user_code, on all ranks: the operation threw. invalid_argument: it is empty.
  void allreduce(const ConstTensorView& input, const TensorView& output, const UserOp& op);
  void allreduce(const TensorView& tensor, const UserOp& op) { allreduce(tensor, tensor, op); }

  /// An allreduce that goes on while the program computes; it returns at once. Input and output are
  /// in the host's memory and belong to the library until the call is complete: nothing is copied,
  /// whatever `options.borrow` says. All ranks make these calls in the same order. Every other call
  /// of the communicator waits for all of them; see KVStore::push_async().
  /// Errors  at wait(), on all ranks: those of allreduce(), and invalid_argument for tensors on a
  ///         GPU.
  Pending allreduce_async(const ConstTensorView& input, const TensorView& output,
                          ReduceOp op = ReduceOp::sum, const AsyncOptions& options = {});
  Pending allreduce_async(const TensorView& tensor, ReduceOp op = ReduceOp::sum,
                          const AsyncOptions& options = {}) {
    return allreduce_async(tensor, tensor, op, options);
  }
  /// For bindings: an allreduce_async() whose arguments this rank cannot read, so that the other
  /// ranks' calls, in this place of their order, do not wait for it.
  /// Errors  invalid_argument at wait(), on all ranks, with this text.
  Pending refuse_allreduce_async(std::string why, int priority = 0);

  /// Copies `tensor` of rank `root` into `tensor` of every rank. Collective.
  void broadcast(const TensorView& tensor, int root);

  /// Reduces `input` over all ranks into `output` of rank `root`; other ranks' output is not
  /// touched and may be an empty tensor. Same order of summation. Collective.
  void reduce(const ConstTensorView& input, const TensorView& output, int root,
              ReduceOp op = ReduceOp::sum);
  void reduce(const ConstTensorView& input, const TensorView& output, int root, const UserOp& op);

  /// Reduces `input` over all ranks; rank r receives the r-th of size() equal blocks in `output`.
  /// Shape   input has size() * output.count() elements. Same order of summation. Collective.
  void reduce_scatter(const ConstTensorView& input, const TensorView& output,
                      ReduceOp op = ReduceOp::sum);
  void reduce_scatter(const ConstTensorView& input, const TensorView& output, const UserOp& op);
  /// Reduces into blocks of counts[r] elements for rank r, of which some may be 0. All ranks give
  /// the same counts, which add up to input.count(); output has counts[rank()] elements.
  void reduce_scatter(const ConstTensorView& input, const TensorView& output,
                      std::span<const std::size_t> counts, ReduceOp op = ReduceOp::sum);

  /// Every rank receives the inputs of all ranks, one after the other in the order of ranks.
  /// Shape   output has size() * input.count() elements. Collective.
  void allgather(const ConstTensorView& input, const TensorView& output);
  /// Gathers inputs of counts[r] elements from rank r. All ranks give the same counts, which add up
  /// to output.count(). Without counts they are exchanged first, in a call of their own.
  void allgatherv(const ConstTensorView& input, const TensorView& output,
                  std::span<const std::size_t> counts);
  void allgatherv(const ConstTensorView& input, const TensorView& output);
  /// The `count` of every rank, in the order of ranks, for calls that take counts. Collective.
  [[nodiscard]] std::vector<std::size_t> exchange_counts(std::size_t count);

  /// Rank `root` receives the inputs of all ranks, one after the other in the order of ranks.
  /// Shape   output of `root` has size() * input.count() elements; elsewhere it is not touched and
  ///         may be an empty tensor. Collective.
  void gather(const ConstTensorView& input, const TensorView& output, int root);
  /// Rank r receives the r-th of size() equal blocks of `input` of rank `root`.
  /// Shape   input of `root` has size() * output.count() elements; elsewhere it is not read and may
  ///         be an empty tensor. Collective.
  void scatter(const ConstTensorView& input, const TensorView& output, int root);

  /// Rank r receives the r-th block of every rank, in the order of ranks. Input and output are
  /// apart.
  /// Shape   both have size() equal blocks. Collective.
  void alltoall(const ConstTensorView& input, const TensorView& output);
  /// An alltoall with blocks of any sizes: input_counts[r] elements go to rank r, and
  /// output_counts[r] come from it. Blocks lie one after the other. Collective: a small call, which
  /// compares the counts of all ranks, and one that moves the blocks; few elements travel with the
  /// counts, and then there is no second one.
  /// Errors  invalid_argument, on all ranks: one rank gives another count than another expects.
  void alltoallv(const ConstTensorView& input, std::span<const std::size_t> input_counts,
                 const TensorView& output, std::span<const std::size_t> output_counts);

  /// A message to another rank, which receives it. No other rank takes part. Returns when it has
  /// been received; but a copy of up to 4 KiB may be left for a rank of the same node (of ordinary
  /// memory more), and then this rank's next call of the communicator, of any kind, waits for that
  /// first. So of two ranks, one sends first. Messages from one rank to another arrive in the
  /// order in which they were sent; there are no tags.
  /// Shape   both sides have equally many elements of one dtype, in any shape.
  /// Errors  invalid_argument, on this rank alone: this rank itself, no rank of the communicator, a
  ///         tensor on a GPU. mismatch, on both ranks: another count or dtype; nothing was moved.
  ///         Where a copy was left, the sender's next call throws this error, or that of a lost
  ///         receiver, before it does anything. After a mismatch that call can be repeated.
  void send(const ConstTensorView& tensor, int to_rank);
  void receive(const TensorView& tensor, int from_rank);
  /// For bindings in which messages begin before they are waited for: waits until ranks among
  /// `partners` meet this one, and returns them in the order in which to go to them. Each of them
  /// returns from its own meet() with this rank, and both then exchange messages. Two ranks meet if
  /// both are in this function and one has news for the other; any ranks may wait for any others.
  /// Requires  a communicator in one node; at least one partner, in the order of ranks.
  /// `awaited`  a partner, or -1 before a collective call: the result is empty once all partners
  ///            have come to that call.
  /// Errors  invalid_argument, on this rank alone: other partners or another communicator.
  ///         mismatch, which fails the communicator: the awaited rank waits in a later collective
  ///         call.
  [[nodiscard]] std::vector<int> meet(std::span<const MeetingPartner> partners, int awaited);

  /// The cost of this rank's calls so far, those of stores on it included. Local.
  [[nodiscard]] Statistics statistics() const;

  /// Stop requests: see KVStore::stop_requested() and KVStore::request_stop().
  [[nodiscard]] bool stop_requested() const;
  void request_stop() noexcept;

  /// Returns when every rank has called it. Collective.
  void barrier();

  /// Runs `body` on every rank. If it throws on any, every rank throws the error of the lowest
  /// such rank: for work that may fail on one rank alone, such as reading a file. Collective.
  void agree(const std::function<void()>& body);

  [[nodiscard]] const std::shared_ptr<Group>& group() const noexcept { return group_; }

 private:
  UserReductions& user_reductions();

  std::shared_ptr<Group> group_;
  std::shared_ptr<UserReductions> user_reductions_;  ///< null until the first call
  std::shared_ptr<gpus::SumOverRanks> gpu_sum_;      ///< shared by all copies
};

}  // namespace tutti
