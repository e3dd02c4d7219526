// SPDX-License-Identifier: Apache-2.0
// Operation: a collective call before it is made, with its kind, its data, and the consumer of its
// results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tutti/key.hpp"
#include "tutti/reduce_op.hpp"

#include "collectives/compression/codec.hpp"
#include "collectives/job/function_ref.hpp"
#include "collectives/job/fused_layout.hpp"

namespace tutti::collectives {

/// The name by which the caller asked for the operation: a "push" may be an allreduce or an
/// allgather. It is a number because records are read by other processes, where a text would have
/// another address.
enum class Verb : std::uint8_t {
  of_kind,  ///< the name of the operation's kind
  barrier,
  agree,
  allreduce,
  broadcast,
  reduce,
  reduce_scatter,
  allgather,
  gather,
  scatter,
  alltoall,
  refused_call,  ///< the substitute for a call that this rank cannot make
  init,
  push,
  verify,
  save,
  load,
  sum_of_gpus,
};

/// Returns the name of a verb, such as "push". Safe in a signal handler.
const char* to_string(Verb verb) noexcept;

enum class Kind : std::uint8_t {
  barrier,
  agreement,
  allreduce,
  broadcast,
  reduce,
  reduce_scatter,
  allgather,
  gather,
  scatter,
  alltoall,
  refusal,  ///< in records: the substitute for an invalid call
};

/// True for collectives that only move data, each block from one rank to one other.
constexpr bool moves_blocks(Kind kind) noexcept {
  return kind == Kind::gather || kind == Kind::scatter || kind == Kind::alltoall;
}

/// Returns the verb with the name of a kind.
Verb of_kind(Kind kind) noexcept;

/// An array that an update writes: `width` bytes for each element of a segment, from `begin` on.
struct UpdatedArray {
  std::byte* begin;
  std::size_t width;
};

/// Receives reduced elements piece by piece, while they are still in the cache, instead of having
/// them written to the outputs. An example is an optimizer's update.
class Consumer {
 public:
  virtual ~Consumer() = default;
  /// Processes elements first .. first + count - 1 of a segment. Every element is passed once, in
  /// the order of segments and elements.
  virtual void consume(std::size_t segment, std::size_t first, std::size_t count,
                       const std::byte* reduced) = 0;
  /// True if elements may be passed in any order, and from several threads at a time.
  [[nodiscard]] virtual bool takes_any_order() const { return false; }
  /// Returns all arrays that consume() writes for a segment, if the new contents depend only on the
  /// reduced elements and on the old contents. Then one rank can update for all ranks of its node,
  /// and copy the result to their arrays. Ranks whose calls agree have the same number of arrays,
  /// of the same widths. If empty, each rank has to update for itself.
  [[nodiscard]] virtual std::span<const UpdatedArray> updated_arrays(
      std::size_t /*segment*/) const {
    return {};
  }
};

/// The compression of an allreduce of float32 elements between nodes. The residuals are what the
/// lanes of this rank have not sent yet.
struct Packing {
  const Codec& codec;
  std::span<float* const> residuals;  ///< one for each segment, as a whole; null without feedback
};

/// A collective call to be carried out. All ranks pass equal kinds, reductions, roots, digests,
/// counts and dtypes; the engine compares them before it touches a buffer.
struct Operation {
  Kind kind = Kind::barrier;
  ReduceOp reduce = ReduceOp::sum;
  int root = 0;              ///< of a broadcast or reduce; only compared
  std::uint64_t digest = 0;  ///< of everything else that must be equal: keys, shapes, dtypes
  std::uint32_t check = 0;   ///< of values that the ranks should have in common, see Engine::run
  std::span<const Segment> segments;    ///< null but not empty if this rank has no memory for them
  Consumer* consumer = nullptr;         ///< null: results go to the segments' outputs
  FunctionRef<std::string()> describe;  ///< returns the call in words, without its rank
  const Packing* packing = nullptr;     ///< null: elements cross between nodes as they are
  /// Every local rank has its own data, which is summed with that of the same local rank of the
  /// other nodes, as when GPUs have already summed within the node. All nodes have the same number
  /// of ranks.
  bool lanes_apart = false;
  const Key* first_key = nullptr;  ///< first of `keys` keys, for the record; null if there are none
  std::size_t keys = 0;
  Verb verb = Verb::of_kind;  ///< for the record; `describe` begins with it
};

}  // namespace tutti::collectives
