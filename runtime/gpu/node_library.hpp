// SPDX-License-Identifier: Apache-2.0
// Collectives among the GPUs of a node, one per rank: the interface of NCCL to the reducer
// (runtime/nccl).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "tutti/dtype.hpp"

#include "runtime/gpu/kernels.hpp"

namespace tutti::gpus {

/// Elements of one type that are summed over ranks. `from` may equal `to`, if it does on all ranks.
struct Sum {
  const std::byte* from;
  std::byte* to;
  std::size_t count;
  DType dtype;
};

/// The deadline of a call of the library that waits for other ranks, and the check that it makes
/// meanwhile.
struct Patience {
  std::chrono::duration<double> timeout{0};  ///< 0: no limit. Errors of the call: timeout
  std::function<void()> poll;                ///< called while it waits; may throw
};

/// This rank's communicator of the library. All ranks of the node make the same calls in the same
/// order; calls are put into the stream and run later. Groups of the same ranks share it. Errors:
/// communication.
class NodeCollectives {
 public:
  virtual ~NodeCollectives() = default;

  /// Sums over the node's ranks: all sums by one call of the library.
  virtual void allreduce(Stream stream, std::span<const Sum> sums, const Patience& patience) = 0;
  /// `data` holds a shard of `count` elements per rank. This rank's own shard becomes the sum.
  virtual void reduce_scatter(Stream stream, std::byte* data, std::size_t count, DType dtype,
                              const Patience& patience) = 0;
  /// Copies every rank's own shard, as reduce_scatter leaves it, to all ranks.
  virtual void allgather(Stream stream, std::byte* data, std::size_t count, DType dtype,
                         const Patience& patience) = 0;

  /// The library's words for an error that has occurred since, if any: work in a stream may then
  /// never end by itself. Any thread, as abort().
  [[nodiscard]] virtual std::optional<std::string> failure() = 0;
  /// Ends all work in streams on this rank. The object cannot be used afterwards. Local.
  virtual void abort() noexcept = 0;
  /// Called when all work has run without error, and this rank makes no more calls. Begins an end
  /// in which all ranks take part, and waits for none of them.
  virtual void part() noexcept = 0;
};

/// A name by which a node's ranks find each other: made by one of them, and given to all.
using NodeId = std::array<char, 128>;

class NodeLibrary {
 public:
  virtual ~NodeLibrary() = default;

  /// The reason why the library cannot be used; empty if it can.
  [[nodiscard]] virtual std::string unusable() = 0;
  /// Name and version: "NCCL 2.28.9".
  [[nodiscard]] virtual std::string describe() = 0;
  [[nodiscard]] virtual NodeId make_id() = 0;
  /// Joins the ranks of a node: returns when all have called it. Collective over the node.
  [[nodiscard]] virtual std::unique_ptr<NodeCollectives> join(const NodeId& id, int local_rank,
                                                              int local_size, int device,
                                                              const Patience& patience) = 0;
};

/// The library that sums between the GPUs of a node. Defined by runtime/nccl.
std::unique_ptr<NodeLibrary> find_node_library();

}  // namespace tutti::gpus
