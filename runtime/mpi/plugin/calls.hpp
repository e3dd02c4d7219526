// SPDX-License-Identifier: Apache-2.0
// Calls: the interface to an MPI, without <mpi.h>. Types of handles and values of constants differ
// between MPIs, so a small part is compiled once for every kind of MPI (calls.cpp). The shared
// library loads the part that a job needs, and the static library contains one.
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

/// The bytes of an MPI_Comm and of an MPI_Request. If all are zero, there is none: no MPI has such
/// a handle, and MPI 5's standard forbids it.
struct Comm {
  alignas(8) std::array<std::byte, 8> bytes{};
  [[nodiscard]] bool is_set() const noexcept { return bytes != decltype(bytes){}; }
};
struct Request {
  alignas(8) std::array<std::byte, 8> bytes{};
};

/// MPI_THREAD_SINGLE and so on, in the same order.
enum class ThreadLevel { single, funneled, serialized, multiple };

constexpr int kAnyRank = -1;  ///< in place of the sender of a message
constexpr int kAnyTag = -1;

/// The functions of one MPI. Unless it cannot fail, each returns MPI's code, which is 0 on success.
/// Sizes are in bytes. Functions named like those of MPI are not described. Never destroyed.
class Calls {
 public:
  virtual ~Calls() = default;

  // --- the library ---
  [[nodiscard]] virtual MpiAbi abi() const noexcept = 0;
  /// Returns the text of MPI_Get_library_version; also before MPI_Init.
  [[nodiscard]] virtual std::string version() const = 0;
  /// Returns the MPI whose header was compiled in, such as "Open MPI v4.1.4".
  [[nodiscard]] virtual std::string header_version() const = 0;
  [[nodiscard]] virtual std::string error_text(int code) const = 0;
  [[nodiscard]] virtual bool is_initialized() const noexcept = 0;
  [[nodiscard]] virtual bool is_finalized() const noexcept = 0;
  virtual int initialize(ThreadLevel wanted) const = 0;
  virtual int thread_level(ThreadLevel* level) const = 0;
  virtual int finalize() const = 0;
  virtual void abort(int exit_code) const = 0;
  /// Makes MPI_Finalize call body(argument) while messages can still be sent; the last registered
  /// first.
  virtual int call_at_finalize(void (*body)(void*) noexcept, void* argument) const = 0;

  // --- communicators ---
  [[nodiscard]] virtual Comm world() const noexcept = 0;
  /// Returns the communicator at this address, which has the type of the program's <mpi.h>.
  [[nodiscard]] virtual Comm comm_at(const void* address) const noexcept = 0;
  virtual void store_comm(const Comm& comm, void* address) const noexcept = 0;
  [[nodiscard]] virtual bool is_null(const Comm& comm) const noexcept = 0;
  virtual int is_intercommunicator(const Comm& comm, bool* result) const = 0;
  virtual int rank(const Comm& comm, int* rank) const = 0;
  virtual int size(const Comm& comm, int* size) const = 0;
  virtual int duplicate(const Comm& comm, Comm* copy) const = 0;
  /// `copy` must not move until the request is complete.
  virtual int start_duplicate(const Comm& comm, Comm* copy, Request* request) const = 0;
  virtual int return_errors(const Comm& comm) const = 0;
  virtual int free(Comm* comm) const = 0;
  /// Returns the ranks of `comm` in MPI_COMM_WORLD; empty if they are the same.
  virtual int ranks_in_world(const Comm& comm, std::vector<int>* ranks) const = 0;
  /// Returns the ranks that can share memory with this one, according to MPI, in the order of
  /// `comm`. Collective.
  virtual int split_host(const Comm& comm, int own_rank, Comm* host) const = 0;
  /// Returns the ranks that take part, in the order of `comm`; none on the others. Collective.
  virtual int split(const Comm& comm, int own_rank, bool takes_part, Comm* part) const = 0;
  /// Makes a communicator of some of the ranks, which all call this.
  virtual int create_group(const Comm& comm, const std::vector<int>& ranks, int tag,
                           Comm* group) const = 0;
  virtual int tag_limit(int* most) const = 0;

  // --- nonblocking collectives ---
  virtual int start_barrier(const Comm& comm, Request* request) const = 0;
  virtual int start_minimum(const std::uint64_t* own, std::uint64_t* least, int count,
                            const Comm& comm, Request* request) const = 0;
  virtual int start_allgather(const void* own, int bytes, void* all, const Comm& comm,
                              Request* request) const = 0;
  /// Stores `bytes[i]` bytes of rank i at `begins[i]`; both must not move until it is complete.
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
  /// Does not wait; sets `from` to the sender of an available message.
  virtual int probe(int* from, int tag, const Comm& comm, bool* found) const = 0;
  /// Waits for a message, and returns its length.
  virtual int wait_for_message(int from, int tag, const Comm& comm, int* bytes) const = 0;
  virtual int test(Request* request, bool* done) const = 0;
  virtual int wait(Request* request) const = 0;
  virtual int cancel(Request* request) const = 0;
  virtual int release(Request* request) const = 0;
};

/// The result of a plug-in's only symbol. `version` and `layout` are compared before anything else.
struct Plugin {
  const char* version;   ///< TUTTI_VERSION of the plug-in's build
  std::uint64_t layout;  ///< kLayout of the plug-in's build
  const Calls* calls;
};
constexpr std::uint64_t kLayout = 2;  ///< changes with the interface
constexpr const char* kPluginSymbol = "tutti_mpi_plugin";
using PluginFunction = const Plugin*() noexcept;

/// Returns the calls that are compiled in.
const Calls& compiled_calls() noexcept;

}  // namespace tutti::mpi
