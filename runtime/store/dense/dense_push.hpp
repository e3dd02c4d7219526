// SPDX-License-Identifier: Apache-2.0
// A push of tensors as one fused operation over its keys.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/job/group.hpp"
#include "runtime/store/core/pull_plan.hpp"
#include "runtime/store/core/push_plan.hpp"
#include "runtime/store/core/push_protocol.hpp"
#include "runtime/store/core/store_state.hpp"
#include "runtime/store/dense/compressed_sum.hpp"
#include "runtime/store/verify/sample.hpp"

namespace tutti {

/// A push of tensors to keys on the CPU: see push_protocol.hpp. The vectors are kept from one push
/// to the next.
class DensePush {
 public:
  DensePush(const StoreState& store, PushPlan& plan)
      : group_(*store.group),
        plan_(plan),
        store_(store),
        announcement_(store.rule, store.compression),
        compressed_sum_(group_, store.compression),
        sample_(group_.topology().size > 1 ? group_.settings().verify : Verify::off) {}

  /// Sums lists of values, makes room, and decides where results go. Null: there are no outputs.
  /// Errors: out_of_memory.
  void take(const PullPlan* outputs = nullptr);
  /// True if sum() writes the first output of every key itself. The caller copies the others.
  [[nodiscard]] bool writes_outputs() const { return writes_outputs_; }

  /// The take() of a push of one key whose sum is made in slices. The update waits for the last
  /// slice. `room`, if not null, gets the sum; it may be the pushed value itself.
  void take_for_slices(std::byte* room);
  /// Sums one slice, instead of sum(). The announcement of the first slice compares the replica
  /// that the push will change.
  void sum_slice(std::size_t first, std::size_t count);

  /// Does nothing: the sum's own announcement is the agreement.
  void agree() {}
  void prepare() {}
  /// Sums over the ranks. Replicas that differ are healed first: see Comparison.
  void sum();
  /// Finishes the update after the pieces. An exception of an updater fails the group.
  void update();

  /// Chunks of replicas healed so far.
  [[nodiscard]] std::uint64_t healed() const { return healed_; }

 private:
  /// The inputs of a segment: `all` is empty unless there are several.
  struct Inputs {
    const std::byte* first;
    std::span<const std::byte* const> all{};
  };
  Inputs inputs_of(PushItem& item);
  /// True if the values of an item are summed by the operation itself, on the way to their outputs.
  [[nodiscard]] bool sums_on_the_way(const PushItem& item) const;
  [[nodiscard]] const std::byte* on_host(const ConstTensorView& value);
  void choose_direct_outputs(const PullPlan* outputs);
  [[nodiscard]] bool find_direct_outputs(const PullPlan& outputs);
  [[nodiscard]] bool outputs_are_apart() const;
  std::byte* scratch(std::size_t bytes);
  /// True if sums are put into scratch memory, for an updater or an optimizer that needs them
  /// whole.
  [[nodiscard]] bool needs_whole_sums() const;
  void put_sums(std::byte* into);
  [[nodiscard]] std::uint64_t most_updates(const Optimizer& optimizer) const;
  /// False if the gradients are not finite. See GradientScaler.
  [[nodiscard]] bool scale_gradients();
  void call_updater(const Updater& updater);
  void run_verified(collectives::Operation& operation);
  /// The consumer of sums as they arrive; null if they are needed whole.
  collectives::Consumer* piecewise_consumer();

  Group& group_;
  PushPlan& plan_;
  const StoreState store_;
  PushAnnouncement announcement_;
  CompressedSum compressed_sum_;
  std::vector<Tensor> host_values_;  ///< copies of values on GPUs
  std::vector<collectives::Segment> segments_;
  std::vector<std::vector<const std::byte*>> inputs_;  ///< inputs of each segment that has several
  bool writes_outputs_ = false;
  struct {
    std::uint64_t of_push = 0;
    std::uint64_t of_outputs = 0;
    /// First outputs of each segment; empty if sums cannot be written there.
    std::vector<std::byte*> first;
  } direct_;  ///< results for the plans of these numbers
  bool has_slices_ = false;
  std::optional<OptimizerConsumer> consumer_;
  std::optional<Tensor> merged_;  ///< whole sums of all keys of a push
  Sample sample_;
  std::uint64_t healed_ = 0;
};

}  // namespace tutti
