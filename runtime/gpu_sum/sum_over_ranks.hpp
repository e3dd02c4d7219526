// SPDX-License-Identifier: Apache-2.0
// The sum over a group's ranks of values on their GPUs.
#pragma once

#include <memory>
#include <span>

#include "tutti/tensor.hpp"

#include "runtime/gpu/gpus.hpp"
#include "runtime/gpu_sum/reducer.hpp"
#include "runtime/job/group.hpp"

namespace tutti::gpus {

/// What a layout of values may make use of, the same on all ranks: see Reducer.
struct SumTraits {
  bool takes_inputs = false;
  bool has_registered = false;
  std::size_t window_bytes = 0;
  friend bool operator==(const SumTraits&, const SumTraits&) = default;
};

/// Belongs to whoever sums: a store's push, a communicator. The reducer is made for the first call,
/// and again when this rank's device is another one, on all ranks alike; one that is never used
/// costs nothing.
class SumOverRanks {
 public:
  explicit SumOverRanks(std::shared_ptr<Group> group) : group_(std::move(group)) {}
  SumOverRanks(const SumOverRanks&) = delete;
  SumOverRanks& operator=(const SumOverRanks&) = delete;
  /// A forked process has neither the GPUs nor the threads of its parent.
  ~SumOverRanks() {
    if (group_ != nullptr && group_->is_forked()) static_cast<void>(reducer_.release());
  }

  /// Sums parts in memory of this rank's `device`, in place: see Reducer::allreduce. Collective.
  /// Errors, on all ranks alike: invalid_argument if two ranks of a node share a GPU and NCCL was
  /// asked for; those of Reducer::allreduce.
  void allreduce(const std::shared_ptr<Gpus>& gpus, int device, std::span<const Part> parts);

  /// None before the first sum. Local.
  [[nodiscard]] SumTraits traits(int device) const {
    if (reducer_ == nullptr || device_ != device) return {};
    return {reducer_->takes_inputs(), reducer_->has_registered(), reducer_->window_bytes()};
  }
  /// See Reducer. Local.
  [[nodiscard]] std::byte* registered(std::size_t bytes) { return reducer_->registered(bytes); }
  /// See Reducer. Only while traits() have window_bytes.
  [[nodiscard]] std::span<std::byte* const> windows() const { return reducer_->windows(); }
  [[nodiscard]] std::byte* own_window() const {
    return windows()[static_cast<std::size_t>(group_->topology().rank)];
  }
  void begin_reading() { reducer_->begin_reading(); }
  /// See Reducer. Local, and nothing before the first sum.
  void finish();
  void await();
  void check();

  /// Communicator::allreduce (sum) of tensors on one GPU. Collective. Errors: as there.
  void allreduce(const ConstTensorView& input, const TensorView& output);

 private:
  void allreduce_in(const Tensor& bucket, const std::shared_ptr<Gpus>& gpus,
                    const ConstTensorView& input, const TensorView& output);
  void allreduce_in_windows(Gpus& gpus, const ConstTensorView& input, const TensorView& output);

  std::shared_ptr<Group> group_;
  std::unique_ptr<Reducer> reducer_;
  int device_ = -1;  ///< the reducer's
};

}  // namespace tutti::gpus
