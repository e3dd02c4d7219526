// SPDX-License-Identifier: Apache-2.0
// What the library needs of an MPI, without <mpi.h>: the types of handles and the numbers of
// constants are each MPI's own, so a small part is compiled once for every kind of MPI (calls.cpp).
// The shared library loads the one that a job needs, and the static library contains one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/dtype.hpp"
#include "tutti/mpi_abi.hpp"
#include "tutti/reduce_op.hpp"

namespace tutti::mpi {

/// The bytes of an MPI_Comm and of an MPI_Request, from the first on. All zero: none. No MPI has
/// such a handle, and MPI 5's standard forbids it.
struct Comm {
  alignas(8) std::array<std::byte, 8> bytes{};
  [[nodiscard]] bool is_set() const noexcept { return bytes != decltype(bytes){}; }
};
struct Request {
  alignas(8) std::array<std::byte, 8> bytes{};
};

/// MPI_THREAD_SINGLE and so on, in their order.
enum class ThreadLevel { single, funneled, serialized, multiple };

constexpr int kAnyRank = -1;  ///< instead of the sender of a message
constexpr int kAnyTag = -1;

/// The functions of one MPI. Each returns MPI's code, 0 where it succeeded, unless it cannot fail.
/// Sizes are in bytes. What the names of MPI say is not repeated here. Never destroyed.
class Calls {
 public:
  virtual ~Calls() = default;

  // --- the library ---
  [[nodiscard]] virtual MpiAbi abi() const noexcept = 0;
  /// As MPI_Get_library_version has it. Before MPI_Init, too.
  [[nodiscard]] virtual std::string version() const = 0;
  /// The MPI whose header was compiled in, such as "Open MPI v4.1.4".
  [[nodiscard]] virtual std::string header_version() const = 0;
  [[nodiscard]] virtual std::string error_text(int code) const = 0;
  [[nodiscard]] virtual bool is_initialized() const noexcept = 0;
  [[nodiscard]] virtual bool is_finalized() const noexcept = 0;
  virtual int initialize(ThreadLevel wanted) const = 0;
  virtual int thread_level(ThreadLevel* level) const = 0;
  virtual int finalize() const = 0;
  virtual void abort(int exit_code) const = 0;
  /// MPI_Finalize calls body(argument), the last one given first, while messages can be sent.
  virtual int call_at_finalize(void (*body)(void*) noexcept, void* argument) const = 0;

  // --- communicators ---
  [[nodiscard]] virtual Comm world() const noexcept = 0;
  /// The communicator at this address, as the program's <mpi.h> has it.
  [[nodiscard]] virtual Comm comm_at(const void* address) const noexcept = 0;
  virtual void store_comm(const Comm& comm, void* address) const noexcept = 0;
  [[nodiscard]] virtual bool is_null(const Comm& comm) const noexcept = 0;
  virtual int is_intercommunicator(const Comm& comm, bool* result) const = 0;
  virtual int rank(const Comm& comm, int* rank) const = 0;
  virtual int size(const Comm& comm, int* size) const = 0;
  virtual int duplicate(const Comm& comm, Comm* copy) const = 0;
  /// `copy` stays where it is until the request is complete.
  virtual int start_duplicate(const Comm& comm, Comm* copy, Request* request) const = 0;
  virtual int return_errors(const Comm& comm) const = 0;
  virtual int free(Comm* comm) const = 0;
  /// The ranks of `comm` in MPI_COMM_WORLD; empty if they are its ranks.
  virtual int ranks_in_world(const Comm& comm, std::vector<int>* ranks) const = 0;
  /// The ranks that MPI can give shared memory with this one, in the order of `comm`. Collective.
  virtual int split_host(const Comm& comm, int own_rank, Comm* host) const = 0;
  /// Those that take part, in the order of `comm`; none for the others. Collective.
  virtual int split(const Comm& comm, int own_rank, bool takes_part, Comm* part) const = 0;
  /// A communicator of some of the ranks, which all call this.
  virtual int create_group(const Comm& comm, const std::vector<int>& ranks, int tag,
                           Comm* group) const = 0;
  virtual int tag_limit(int* most) const = 0;

  // --- nonblocking collectives ---
  virtual int start_barrier(const Comm& comm, Request* request) const = 0;
  virtual int start_minimum(const std::uint64_t* own, std::uint64_t* least, int count,
                            const Comm& comm, Request* request) const = 0;
  virtual int start_allgather(const void* own, int bytes, void* all, const Comm& comm,
                              Request* request) const = 0;
  /// `bytes[i]` of rank i come to `begins[i]`; both stay where they are until it is complete.
  virtual int start_allgather_parts(std::span<const std::byte> own, void* all,
                                    const std::vector<int>& bytes, const std::vector<int>& begins,
                                    const Comm& comm, Request* request) const = 0;
  virtual int start_broadcast(void* data, int bytes, int root, const Comm& comm,
                              Request* request) const = 0;
  virtual int start_allreduce(void* data, int count, DType dtype, ReduceOp op, const Comm& comm,
                              Request* request) const = 0;

  // --- messages ---
  virtual int send(const void* data, int bytes, int to, int tag, const Comm& comm,
                   Request* request) const = 0;
  virtual int receive(void* data, int bytes, int from, int tag, const Comm& comm,
                      Request* request) const = 0;
  /// Without waiting; `from` becomes the sender of a message that is there.
  virtual int probe(int* from, int tag, const Comm& comm, bool* found) const = 0;
  /// Waits, and says how long the message is.
  virtual int wait_for_message(int from, int tag, const Comm& comm, int* bytes) const = 0;
  virtual int test(Request* request, bool* done) const = 0;
  virtual int wait(Request* request) const = 0;
  virtual int cancel(Request* request) const = 0;
  virtual int release(Request* request) const = 0;
};

/// What a plug-in's one symbol gives. `version` and `layout` are compared before anything else.
struct Plugin {
  const char* version;   ///< TUTTI_VERSION of its build
  std::uint64_t layout;  ///< kLayout of its build
  const Calls* calls;
};
constexpr std::uint64_t kLayout = 2;  ///< another number for another interface
constexpr const char* kPluginSymbol = "tutti_mpi_plugin";
using PluginFunction = const Plugin*() noexcept;

/// The one that is compiled in.
const Calls& compiled_calls() noexcept;

}  // namespace tutti::mpi
