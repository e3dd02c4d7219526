// SPDX-License-Identifier: Apache-2.0
// Collectives among the GPUs of a node, one per rank: what NCCL is to the reducer (runtime/nccl).
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

/// Elements of one type that are summed over ranks. `from` may be `to`, on all ranks alike.
struct Sum {
  const std::byte* from;
  std::byte* to;
  std::size_t count;
  DType dtype;
};

/// How long a call of the library may wait for other ranks, and what it hears meanwhile.
struct Patience {
  std::chrono::duration<double> timeout{0};  ///< 0: no limit. Errors of the call: timeout
  std::function<void()> poll;                ///< called while it waits; may throw
};

/// This rank's end. All ranks of the node make the same calls in the same order; calls are put into
/// the stream and run later. Groups of the same ranks share it. Errors: communication.
class NodeCollectives {
 public:
  virtual ~NodeCollectives() = default;

  /// Sums over the node's ranks, all of them by one call of the library.
  virtual void allreduce(Stream stream, std::span<const Sum> sums, const Patience& patience) = 0;
  /// `data` holds a shard of `count` elements per rank. This rank's own becomes the sum.
  virtual void reduce_scatter(Stream stream, std::byte* data, std::size_t count, DType dtype,
                              const Patience& patience) = 0;
  /// Every rank's own shard, as reduce_scatter leaves it, comes to all.
  virtual void allgather(Stream stream, std::byte* data, std::size_t count, DType dtype,
                         const Patience& patience) = 0;

  /// The library's words for an error that has come since, if any: work in a stream may then never
  /// end by itself.
  /// Any thread, as abort().
  [[nodiscard]] virtual std::optional<std::string> failure() = 0;
  /// Ends all work in streams, here. The object is good for nothing afterwards. Local.
  virtual void abort() noexcept = 0;
  /// All is well, all work has run, and this rank makes no more calls. Begins an end in which all
  /// ranks take part, and waits for none.
  virtual void part() noexcept = 0;
};

/// Names a node's ranks to each other: made by one of them, and given to all.
using NodeId = std::array<char, 128>;

class NodeLibrary {
 public:
  virtual ~NodeLibrary() = default;

  /// Empty if the library can be used, else why not.
  [[nodiscard]] virtual std::string unusable() = 0;
  /// "NCCL 2.28.9".
  [[nodiscard]] virtual std::string describe() = 0;
  [[nodiscard]] virtual NodeId make_id() = 0;
  /// Joins the ranks of a node: returns when all are there. Collective over the node.
  [[nodiscard]] virtual std::unique_ptr<NodeCollectives> join(const NodeId& id, int local_rank,
                                                              int local_size, int device,
                                                              const Patience& patience) = 0;
};

/// What sums between the GPUs of a node. Defined by runtime/nccl.
std::unique_ptr<NodeLibrary> find_node_library();

}  // namespace tutti::gpus
