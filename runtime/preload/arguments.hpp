// SPDX-License-Identifier: Apache-2.0
// The arguments of a program's call as the engine takes them. What decides who carries a call out
// comes from what MPI's standard makes equal on all ranks of a communicator.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mpi.h>
#include <optional>
#include <span>
#include <string>

#include "collectives/engine/engine.hpp"
#include "collectives/job/function_ref.hpp"
#include "runtime/preload/collectives.hpp"
#include "runtime/preload/process.hpp"

namespace tutti::preload {

inline const std::byte* as_bytes(const void* memory) {
  return static_cast<const std::byte*>(memory);
}
inline std::byte* as_bytes(void* memory) { return static_cast<std::byte*>(memory); }

/// A call in words, for errors: "MPI_Bcast of 7 MPI_INT with root 0 on grid rows".
std::string words(const char* function, int count, MPI_Datatype type, const std::string& more,
                  MPI_Comm comm);
std::string name_of(MPI_Comm comm);
/// " with MPI_SUM"
std::string with(MPI_Op op);
/// Differs for MPI's own operations, and from all of the program's.
std::uint64_t digest_of(MPI_Op op);
inline std::string with_root(int root) { return " with root " + std::to_string(root); }

/// The digest that ranks compare beside the kind of call, the operation and the root. Below 2^56
/// elements, calls of other counts or types have other digests.
inline std::uint64_t digest_of(std::size_t count, DType element) {
  return static_cast<std::uint64_t>(count) << 8 | static_cast<std::uint64_t>(element);
}

/// True for items that MPI refuses on the rank that gives them.
inline bool is_refused(int count, MPI_Datatype type) {
  return count < 0 || type == MPI_DATATYPE_NULL;
}

/// All elements of a call that reduces, if the engine can.
struct Reduction {
  std::size_t count;  ///< of the engine's elements
  DType element;
  ReduceOp op;

  [[nodiscard]] std::size_t bytes() const { return count * size_of(element); }
  /// Another order of the operands gives other bits, so that these may not depend on who is faster.
  [[nodiscard]] bool has_an_order() const {
    return element == DType::float32 || element == DType::float64;
  }
};
std::optional<Reduction> reduction_of(const Process& process, const Elements& all);

/// The group of a communicator, if it has one. Collective in the first call for it; a rank on which
/// MPI fails in the middle of that ends the job.
const Served* served_by(Process& process, MPI_Comm comm) noexcept;
inline bool is_root_of(const Served& served, int root) {
  return root >= 0 && root < served.group->topology().size;
}

/// The code of MPI's that `body` returns, or that of the error that it throws.
template <class Body>
int guarded_code(MPI_Comm comm, Body body) {
  int code = MPI_SUCCESS;
  const int raised = guarded(comm, [&] { code = body(); });
  return raised != MPI_SUCCESS ? raised : code;
}

/// Carries out a call by the engine. Returns false, on all ranks alike, if one of them has a buffer
/// in a GPU's memory; then nothing was changed. Collective. Errors: see Engine::run().
bool run(const Served& served, const collectives::Operation& operation);

/// Carries out a call by `own`, see Choice::run(), or if it cannot, by MPI. Then further calls of
/// the size are MPI's, too, unless each has to be announced. Collective over the group's ranks.
template <class Own, class ByMpi>
int carry_out(const Served& served, collectives::Kind kind, std::size_t bytes, Own own,
              ByMpi by_mpi) {
  if (served.left != nullptr && served.left->has(kind, bytes)) return by_mpi();
  bool is_done = false;
  const int code = own(is_done);
  if (is_done || code != MPI_SUCCESS) return code;
  if (served.left != nullptr) served.left->add(kind, bytes);
  return by_mpi();
}
/// Carries out a call by `own`, or where that may be chosen by the faster of the two, which return
/// MPI's code. Collective over `comm`.
template <class Own, class ByMpi>
int carry_out(const Served& served, collectives::Kind kind, std::size_t bytes, MPI_Comm comm,
              Own own, ByMpi by_mpi) {
  if (served.choice == nullptr) return carry_out(served, kind, bytes, own, by_mpi);
  return served.choice->run(kind, bytes, comm, own, by_mpi);
}

/// Carries out a call by MPI, on all ranks alike. Where waits are watched, the ranks meet first, so
/// that who is missing or makes another call is named. `name` is what reports count it as, and
/// lives on. Collective over `comm`. Returns MPI's code.
int carry_out_by_mpi(const char* name, MPI_Comm comm, std::uint64_t digest,
                     collectives::FunctionRef<std::string()> describe,
                     collectives::FunctionRef<int()> by_mpi);
template <class ByMpi>
int carry_out_by_mpi(const char* name, MPI_Comm comm, ByMpi by_mpi) {
  const auto describe = [&] { return std::string(name) + " on " + name_of(comm); };
  return carry_out_by_mpi(name, comm, 0, describe, by_mpi);
}
template <class ByMpi>
int carry_out_by_mpi(const char* name, int root, MPI_Comm comm, ByMpi by_mpi) {
  const auto describe = [&] { return name + with_root(root) + " on " + name_of(comm); };
  return carry_out_by_mpi(name, comm, static_cast<std::uint64_t>(root) + 1, describe, by_mpi);
}
/// Carries out by MPI a reduction that the engine cannot carry out.
template <class ByMpi>
int reduce_by_mpi(const char* name, const Elements& all, MPI_Comm comm, ByMpi by_mpi,
                  int root = -1) {
  if (is_refused(all.count, all.type)) return by_mpi();
  const auto describe = [&] {
    return words(name, all.count, all.type, with(all.op) + (root < 0 ? "" : with_root(root)), comm);
  };
  const std::uint64_t digest = static_cast<std::uint64_t>(root + 1) << 40 |
                               static_cast<std::uint64_t>(all.count) << 8 | digest_of(all.op);
  return carry_out_by_mpi(name, comm, digest, describe, by_mpi);
}

/// MPI_Unpack, also where `buffer` is MPI_BOTTOM, from `at` on. Returns MPI's code.
int unpack(std::span<const std::byte> packed, int& at, void* buffer, int count, MPI_Datatype type,
           MPI_Comm comm);

/// So many items of a datatype in the program's memory, as bytes in the order of the datatype.
class Items {
 public:
  Items(const Process& process, int count, MPI_Datatype type);

  /// Equal on all ranks that give the same data, whatever their datatypes are. None where the count
  /// is 0 or wrong, or where MPI_Pack could not count the bytes.
  [[nodiscard]] std::optional<std::size_t> bytes() const { return bytes_; }
  /// True if the bytes lie in the program's memory as they are sent.
  [[nodiscard]] bool are_plain() const { return are_plain_; }
  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] MPI_Datatype type() const { return type_; }

  /// The bytes in `buffer`, or a copy of it in `copy`. Errors: MPI's code.
  int read(const void* buffer, MPI_Comm comm, std::unique_ptr<std::byte[]>& copy,
           const std::byte*& data) const;
  /// The place for the bytes of `buffer`: there, or in `copy`, which write() then takes.
  std::byte* target(void* buffer, std::unique_ptr<std::byte[]>& copy) const;
  int write(const std::unique_ptr<std::byte[]>& copy, void* buffer, MPI_Comm comm) const;

 private:
  int count_;
  MPI_Datatype type_;
  bool are_plain_;
  std::optional<std::size_t> bytes_;
};

}  // namespace tutti::preload
