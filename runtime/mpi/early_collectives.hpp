// SPDX-License-Identifier: Apache-2.0
// EarlyCollectives: the collectives of ranks before there is an engine. Each step has the deadline
// of any wait, and an error of one rank is thrown by all.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "collectives/job/function_ref.hpp"
#include "runtime/mpi/plugin/calls.hpp"
#include "runtime/mpi/poll_pause.hpp"

namespace tutti::mpi {

/// Returns the name of this process for messages, such as "rank 3 (host b, pid 47)".
std::string name_of_process(int rank);

/// In all functions, `step` completes the sentence "waited for all ranks to ..." in the error of a
/// deadline. All functions are collective, except wait(). Errors: communication; timeout, which in
/// a communicator of our own names the ranks that do not answer, and after which no function may be
/// called.
///
/// Memory does not grow with the number of ranks, except while they are asked who is there.
///
/// MPI's nonblocking collectives are polled. Their buffers belong to this object, which leaks them
/// if a deadline has passed.
class EarlyCollectives {
 public:
  /// Uses the ranks of `parent`. There is no deadline if `timeout` is 0. `warns` allows
  /// warnings. Local.
  EarlyCollectives(const Comm& parent, std::chrono::duration<double> timeout, bool warns = true);

  /// Makes a communicator of our own for all further steps. It returns errors, may be used for
  /// messages, and is freed by MPI_Finalize. Conditions for making a communicator have to be agreed
  /// on before.
  void leave_parent(const char* step);
  /// Does the same with an existing communicator of these ranks that nothing else uses now. Local.
  void meet_in(const Comm& own);

  /// Returns the parent, or after leave_parent() our own communicator.
  [[nodiscard]] const Comm& comm() const { return comm_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// Returns this rank's name, such as "rank 3 (host b, pid 47)".
  [[nodiscard]] const std::string& name() const { return name_; }

  /// Returns another copy of the communicator, which the caller has to free.
  [[nodiscard]] Comm duplicate(const char* step);
  /// Returns the ranks of this host, in the order of ranks. The caller has to free it.
  [[nodiscard]] Comm split_host(const char* step);
  /// Returns the ranks that take part, in the order of ranks; not set on others. The caller has to
  /// free it.
  [[nodiscard]] Comm split(const char* step, bool takes_part);
  void barrier(const char* step);
  [[nodiscard]] std::uint64_t minimum(const char* step, std::uint64_t own) {
    minima(step, std::span(&own, 1));
    return own;
  }
  /// Replaces each of a few values by the minimum over all ranks.
  void minima(const char* step, std::span<std::uint64_t> values);
  /// Returns the values of all ranks of `among`, in their order. Collective over these ranks.
  template <class T>
  [[nodiscard]] std::vector<T> allgather(const char* step, const Comm& among, const T& own) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::span<const std::byte> gathered =
        allgather_bytes(step, among, std::as_bytes(std::span(&own, 1)));
    std::vector<T> all(gathered.size() / sizeof(T));
    std::memcpy(all.data(), gathered.data(), gathered.size());
    return all;
  }
  /// Returns the bytes of all ranks of `among`, of any lengths, in their order. Collective over
  /// these ranks.
  [[nodiscard]] std::vector<std::vector<std::byte>> allgather_parts(const char* step,
                                                                    const Comm& among,
                                                                    std::span<const std::byte> own);
  /// Copies `values` of rank `root` to all ranks.
  template <class T>
  void broadcast(const char* step, int root, std::span<T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    broadcast_bytes(step, root, std::as_writable_bytes(values));
  }
  /// Runs `body` on every rank; if it throws on any, all ranks throw the error of the lowest such
  /// rank. The body must not communicate.
  void agree(const char* step, collectives::FunctionRef<void()> body);

  /// Waits for a message of the caller, whose buffer must live until the process ends.
  void wait(const char* step, Request request);

 private:
  struct Buffers;
  struct RollCall;

  /// The result is valid until the next call.
  std::span<const std::byte> allgather_bytes(const char* step, const Comm& among,
                                             std::span<const std::byte> own);
  void broadcast_bytes(const char* step, int root, std::span<std::byte> bytes);
  void answer_roll_calls(const char* step);
  template <class Start>
  Request begin(const char* call, Start start);
  void test(Request& request, bool* done);
  void return_errors(const Comm& comm) const;
  void tell(int to_rank, const char* step, bool asks);
  [[nodiscard]] std::string call_roll(const char* step);
  [[nodiscard]] std::string missing(const char* step);
  void look_for_other_calls(const char* step, std::chrono::duration<double> waited);
  [[noreturn]] void expire(const char* step, std::chrono::duration<double> waited);

  const Calls& mpi_;
  std::chrono::duration<double> timeout_;
  Comm comm_;
  bool is_own_ = false;
  bool have_met_ = false;  ///< the ranks have met in some step
  bool warns_;
  /// The time of the current wait after which the other groups are looked at again.
  std::chrono::duration<double> next_look_{0};
  int rank_ = 0;
  int size_ = 1;
  std::string name_;  ///< name of this rank, for messages
  std::shared_ptr<Buffers> buffers_;
  PollPause pause_;
  std::map<int, std::string> seen_at_;  ///< the steps that other ranks have reported
};

}  // namespace tutti::mpi
