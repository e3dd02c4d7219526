// SPDX-License-Identifier: Apache-2.0
// One collective of one size on one backend: its buffers, its call and the check of its results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <tutti/communicator.hpp>

#include "apps/benchmark/cases.hpp"
#include "apps/benchmark/options.hpp"
#include "apps/benchmark/pattern.hpp"

namespace apps::benchmark {

/// The work that the ranks do together.
struct Job {
  const Case& chosen;
  Layout layout;
  Pattern pattern;
  int rank = 0;
  int ranks = 1;
  int root = 0;
  bool in_place = false;  ///< the output is the input, for any collective
  int calls_per_iteration = 1;

  [[nodiscard]] bool has_one_buffer() const { return in_place || chosen.in_place; }
};

/// The buffers of one call (a slot, where several are used in turn), a pair per tensor of the
/// layout. The views are made once, so that a timed call makes none. In place, inputs and outputs
/// are views of the same memory.
struct CallBuffers {
  std::vector<tutti::Tensor> memory;
  std::vector<tutti::ConstTensorView> inputs;
  std::vector<tutti::TensorView> outputs;
  std::uint64_t turn = 0;  ///< the inputs have the values of this turn
};

using Call = std::function<void(CallBuffers&)>;
using Allocate = std::function<tutti::Tensor(const tutti::Shape&, tutti::DType)>;

/// Replaces the contents of this rank's caches.
class CacheSweeper {
 public:
  explicit CacheSweeper(std::size_t bytes) : memory_(bytes) {}
  void sweep();
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.size(); }

 private:
  std::vector<unsigned char> memory_;
};

/// The number of slots that have more than `cache_bytes` when they are used in turn; from 2 to
/// kMaxSlots.
std::size_t cold_slots(std::size_t slot_bytes, std::size_t cache_bytes);
inline constexpr std::size_t kMaxSlots = 64;

/// A call of MPI on tensors that are on GPUs: by way of the host, as a program without a GPU-aware
/// MPI does it.
Call by_way_of_the_host(const Job& job, Call call);

/// Allocates one slot of a job. Errors: those of `allocate`.
CallBuffers make_slot(const Job& job, const Allocate& allocate);
/// Bytes of one slot.
std::size_t slot_bytes(const Job& job);

/// A collective of one backend at one size, with all that its timed calls need.
class TimedCall {
 public:
  /// In cold mode there are several slots, used in turn, and `sweeper` (if any) runs after each
  /// call; else there is one slot.
  TimedCall(Job job, std::vector<CallBuffers> slots, Call call, CacheMode mode,
            CacheSweeper* sweeper = nullptr);

  /// Called before each call, untimed. In fresh mode this rank stores each element of its inputs.
  /// The values alternate between those of two turns, so that a result of stale inputs is noticed.
  void refresh();

  /// The timed part: one call, or as many as an iteration has.
  void call() {
    for (int call = 0; call < job_.calls_per_iteration; ++call) call_(slots_[current_]);
  }
  [[nodiscard]] int calls_per_iteration() const noexcept { return job_.calls_per_iteration; }

  /// Called after each call, untimed. In cold mode it writes other inputs to the slot of the call,
  /// moves on to the slot that has not been used for longest, and sweeps.
  void renew();

  [[nodiscard]] CacheMode mode() const noexcept { return mode_; }

  /// The number of wrong elements of this rank: of the last timed call unless it was cold, then of
  /// a call with new inputs and poisoned outputs in each slot. Collective.
  std::size_t check();

 private:
  /// Writes the inputs of the next turn.
  void write_inputs(CallBuffers& slot);
  void write(CallBuffers& slot, const Pattern::Values& input) const;
  void poison_outputs(CallBuffers& slot) const;
  [[nodiscard]] std::size_t count_wrong(const CallBuffers& slot) const;
  [[nodiscard]] bool has_input() const;

  Job job_;
  std::vector<CallBuffers> slots_;
  Call call_;
  CacheMode mode_;
  CacheSweeper* sweeper_;
  std::vector<Pattern::Values> fresh_;  ///< values of two turns, used alternately
  std::size_t current_ = 0;
  std::uint64_t turns_ = 0;
};

}  // namespace apps::benchmark
