// SPDX-License-Identifier: Apache-2.0
// What the ranks do together before there is an engine: each step has the deadline of every wait,
// and an error of one rank is thrown by all.
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

namespace tutti::mpi {

/// How messages call this process: "rank 3 (host b, pid 47)".
std::string name_of_process(int rank);

/// `step` completes the sentence "waited for all ranks to ..." of the deadline's error. All calls
/// are collective, but for wait(). Errors: timeout, in a communicator of our own with the ranks
/// that do not answer, after which nothing here may be called; communication.
///
/// Memory does not grow with the number of ranks, but where these are asked who is there.
///
/// MPI's nonblocking collectives are polled. Their buffers belong to this object, which leaves them
/// to MPI where a deadline has passed.
class EarlyCollectives {
 public:
  /// The ranks of `parent`. No deadline if `timeout` is 0. Local.
  EarlyCollectives(const Comm& parent, std::chrono::duration<double> timeout);

  /// From here on the ranks meet in a communicator of their own, which returns errors, and may send
  /// messages in it; MPI_Finalize frees it. What has to hold before MPI makes any communicator is
  /// agreed on before.
  void leave_parent(const char* step);

  /// The parent, or since leave_parent() our own.
  [[nodiscard]] const Comm& comm() const { return comm_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// "rank 3 (host b, pid 47)", this one.
  [[nodiscard]] const std::string& name() const { return name_; }

  /// Another copy, which is the caller's to free.
  [[nodiscard]] Comm duplicate(const char* step);
  /// The ranks of this host, in the order of ranks. The caller's to free.
  [[nodiscard]] Comm split_host(const char* step);
  /// The ranks that take part, in the order of ranks; not set on the others. The caller's to free.
  [[nodiscard]] Comm split(const char* step, bool takes_part);
  void barrier(const char* step);
  [[nodiscard]] std::uint64_t minimum(const char* step, std::uint64_t own) {
    minima(step, std::span(&own, 1));
    return own;
  }
  /// Each value becomes the least of all ranks; a few of them.
  void minima(const char* step, std::span<std::uint64_t> values);
  /// What each rank of `among` has, in their order. Collective over them.
  template <class T>
  [[nodiscard]] std::vector<T> allgather(const char* step, const Comm& among, const T& own) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::span<const std::byte> gathered =
        allgather_bytes(step, among, std::as_bytes(std::span(&own, 1)));
    std::vector<T> all(gathered.size() / sizeof(T));
    std::memcpy(all.data(), gathered.data(), gathered.size());
    return all;
  }
  /// The bytes of each rank of `among`, of any length, in their order. Collective over them.
  [[nodiscard]] std::vector<std::vector<std::byte>> allgather_parts(const char* step,
                                                                    const Comm& among,
                                                                    std::span<const std::byte> own);
  /// `values` of rank `root` come to all.
  template <class T>
  void broadcast(const char* step, int root, std::span<T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    broadcast_bytes(step, root, std::as_writable_bytes(values));
  }
  /// Runs `body` on every rank; if it throws on any, all ranks throw what the lowest such rank
  /// threw. The body communicates with nobody.
  void agree(const char* step, collectives::FunctionRef<void()> body);

  /// Waits for a message of the caller's own, whose buffer lives until the process ends.
  void wait(const char* step, Request request);

 private:
  struct Buffers;
  struct RollCall;

  /// Valid until the next call.
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
  [[noreturn]] void expire(const char* step, std::chrono::duration<double> waited);

  const Calls& mpi_;
  std::chrono::duration<double> timeout_;
  Comm comm_;
  bool is_own_ = false;
  bool have_met_ = false;  ///< in some step
  int rank_ = 0;
  int size_ = 1;
  std::string name_;  ///< this rank's, for messages
  std::shared_ptr<Buffers> buffers_;
  std::map<int, std::string> seen_at_;  ///< the step that ranks say they are in, if they do
};

}  // namespace tutti::mpi
