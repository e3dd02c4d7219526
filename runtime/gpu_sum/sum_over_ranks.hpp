// SPDX-License-Identifier: Apache-2.0
// The sum over a group's ranks of values on their GPUs, for each device of a rank.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "tutti/tensor.hpp"

#include "runtime/gpu/gpus.hpp"
#include "runtime/gpu_sum/reducer.hpp"
#include "runtime/job/group.hpp"

namespace tutti::gpus {

/// The abilities of a Reducer that the layout of sums depends on. Equal on all ranks.
struct SumTraits {
  bool takes_inputs = false;
  std::size_t window_bytes = 0;
  friend bool operator==(const SumTraits&, const SumTraits&) = default;
};

/// The reducers of a store's push, or of a communicator. A device's reducer is made for the first
/// call with values there, on all ranks alike; a device that is never used costs nothing.
class SumOverRanks {
 public:
  explicit SumOverRanks(std::shared_ptr<Group> group) : group_(std::move(group)) {}
  SumOverRanks(const SumOverRanks&) = delete;
  SumOverRanks& operator=(const SumOverRanks&) = delete;
  /// Leaves the reducers alone in a forked process, which has neither the GPUs nor the threads of
  /// its parent.
  ~SumOverRanks() {
    if (group_ == nullptr || !group_->is_forked()) return;
    for (auto& [device, reducer] : reducers_) static_cast<void>(reducer.release());
  }

  /// Makes sums in memory of this rank's `device`: see Reducer::allreduce. Collective.
  /// Errors, on all ranks alike: invalid_argument if two ranks of a node share a GPU and NCCL was
  /// asked for; those of Reducer::allreduce.
  void allreduce(const std::shared_ptr<Gpus>& gpus, int device, std::span<const Sum> sums);

  /// The traits of the device's reducer; the default before its first sum. Local.
  [[nodiscard]] SumTraits traits(int device) const {
    const auto found = reducers_.find(device);
    if (found == reducers_.end()) return {};
    const Reducer& own = *found->second;
    return {own.takes_inputs(), own.window_bytes()};
  }
  /// Windows: see Reducer. Only while traits(device) have them. Local, but for begin_reading().
  [[nodiscard]] std::span<std::byte* const> windows(int device) const {
    return reducers_.at(device)->windows();
  }
  [[nodiscard]] std::byte* own_window(int device) const {
    return windows(device)[static_cast<std::size_t>(group_->topology().rank)];
  }
  /// Begins the turn of a call that is going to make sums there, before the ranks agree on it; the
  /// call ends it. Does nothing before the device's first sum. Local. Errors: those of
  /// SumTurn::begin.
  void begin_turn(SumTurn& turn, Gpus& gpus, int device) const;
  void begin_reading(int device);
  /// See Reducer. finish() is for the last sum's device, the others are for all. Local; they do
  /// nothing before the first sum.
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
  std::map<int, std::unique_ptr<Reducer>> reducers_;  ///< none is null
  Reducer* last_ = nullptr;                           ///< the one of the last sum
};

}  // namespace tutti::gpus
