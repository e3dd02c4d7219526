// SPDX-License-Identifier: Apache-2.0
// A collective call before it is made: its kind, its data, and what takes the results.
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

/// What the caller asked for: "push", say, which may be an allreduce or an allgather. In records,
/// so that it is a number: a text would be at another address in the process that reads it.
enum class Verb : std::uint8_t {
  of_kind,  ///< the operation's own name
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
  refused_call,  ///< what a rank makes instead of a call that it cannot make
  init,
  push,
  verify,
  save,
  load,
  sum_of_gpus,
};

/// "push". Safe in a signal handler.
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
  refusal,  ///< in records: what this rank makes instead of an invalid call
};

/// True for collectives that only move data, each block from one rank to one other.
constexpr bool moves_blocks(Kind kind) noexcept {
  return kind == Kind::gather || kind == Kind::scatter || kind == Kind::alltoall;
}

/// The verb of a call that is called by its kind.
Verb of_kind(Kind kind) noexcept;

/// Memory that an update of elements writes: so many bytes for each element of a segment, from
/// `begin` on.
struct UpdatedArray {
  std::byte* begin;
  std::size_t width;
};

/// Takes reduced elements as they arrive, in pieces that are still in the cache, instead of having
/// them written to the outputs: an optimizer's update, for example.
class Consumer {
 public:
  virtual ~Consumer() = default;
  /// Elements first .. first + count - 1 of a segment. Every element comes once, in the order of
  /// segments and elements.
  virtual void consume(std::size_t segment, std::size_t first, std::size_t count,
                       const std::byte* reduced) = 0;
  /// True if elements may come in any order instead, and from several threads at a time.
  [[nodiscard]] virtual bool takes_any_order() const { return false; }
  /// All that consume() writes for a segment, where that follows from the reduced elements and from
  /// what is there. Then one rank can update for all ranks of its node, and copy what it wrote to
  /// their arrays. Ranks whose calls agree have equally many, of the same widths. Empty: each rank
  /// has to update for itself.
  [[nodiscard]] virtual std::span<const UpdatedArray> updated_arrays(
      std::size_t /*segment*/) const {
    return {};
  }
};

/// How the float32 sums of an allreduce are packed between nodes: with what their ranks' lanes have
/// not sent yet.
struct Packing {
  const Codec& codec;
  std::span<float* const> residuals;  ///< one per segment, whole; null without feedback
};

/// What to do. All ranks pass equal kinds, operations, roots, digests, counts and dtypes; the
/// engine compares them before it touches a buffer.
struct Operation {
  Kind kind = Kind::barrier;
  ReduceOp reduce = ReduceOp::sum;
  int root = 0;                       ///< a broadcast or reduce has one; compared, not used
  std::uint64_t digest = 0;           ///< everything else that must be equal: keys, shapes, dtypes
  std::uint32_t check = 0;            ///< what the ranks should hold alike; see Engine::run
  std::span<const Segment> segments;  ///< null, but not empty: this rank has no memory for them
  Consumer* consumer = nullptr;       ///< null: results go to the segments' outputs
  FunctionRef<std::string()> describe;  ///< the call in words, without its rank
  const Packing* packing = nullptr;     ///< null: elements cross between nodes as they are
  /// Every local rank has data of its own, which is summed with that of the same local rank of the
  /// other nodes: what GPUs have summed in the node already. Nodes have equally many ranks.
  bool lanes_apart = false;
  const Key* first_key = nullptr;  ///< the first of `keys`, for the record; null for none
  std::size_t keys = 0;
  Verb verb = Verb::of_kind;  ///< for the record; `describe` begins with it
};

}  // namespace tutti::collectives
