// SPDX-License-Identifier: Apache-2.0
// A push as one fused operation over its keys.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/group.hpp"
#include "runtime/store/compression/gradient_compression.hpp"
#include "runtime/store/compression/packed_sum.hpp"
#include "runtime/store/key_table.hpp"
#include "runtime/store/push_list.hpp"
#include "runtime/store/resolve.hpp"
#include "runtime/store/updates.hpp"
#include "runtime/store/verify/sample.hpp"

namespace tutti {

/// stage, run; the vectors are kept from one push to the next.
class Push {
 public:
  Push(Group& group, PushList& list, KeyTable& table, const UpdateRule& rule,
       const GradientCompression& compression)
      : group_(group),
        list_(list),
        table_(table),
        rule_(rule),
        compression_(compression),
        packed_sum_(group),
        sample_(group.topology().size > 1 ? group.settings().verify : Verify::off) {}

  /// Sums lists of values, and decides where results go. Errors: out_of_memory.
  void stage(std::span<const KeyGroup<TensorView>> outputs);
  /// True if run() writes the first output of every key itself. The rest is the caller's to copy.
  [[nodiscard]] bool writes_outputs() const { return writes_outputs_; }

  /// Reduces over all ranks and updates. Collective. What an updater throws fails the group.
  /// Replicas that differ are healed first: see Comparison.
  void run();
  /// Instead of stage() and run(): all ranks make this push, with equal keys and rules; else all
  /// throw. Collective.
  void announce();
  /// Chunks of replicas healed so far.
  [[nodiscard]] std::uint64_t healed() const { return healed_; }

  /// Gives new keys rank 0's values. Collective.
  void broadcast_new(std::span<Entry> entries, std::span<const KeyGroup<ConstTensorView>> values);

 private:
  const std::byte* input_of(PushItem& item);
  [[nodiscard]] collectives::Operation operation(collectives::FunctionRef<std::string()> describe);
  [[nodiscard]] std::string describe() const;
  void bring_values(PushItem& item);
  void take_outputs(std::span<const KeyGroup<TensorView>> outputs);
  [[nodiscard]] bool outputs_are_apart() const;
  std::byte* scratch(std::size_t bytes);
  /// True if sums are put into scratch memory, for an updater or an optimizer that wants them
  /// whole.
  [[nodiscard]] bool needs_whole_sums() const;
  [[nodiscard]] std::uint64_t most_updates(const Optimizer& optimizer) const;
  void call_updater(const Updater& updater);
  void reduce(collectives::Operation& operation);
  /// Of the sums, unless they are wanted whole.
  collectives::Consumer* piecewise_consumer();
  /// Packs what this rank pushes, or finds the residuals of what its node will send.
  void stage_compression();
  /// Makes the push what the compression wants it to be.
  void compress(collectives::Operation& operation);

  Group& group_;
  PushList& list_;
  KeyTable& table_;
  const UpdateRule& rule_;
  const GradientCompression& compression_;
  PackedSum packed_sum_;
  std::vector<float*> residuals_;  ///< of what this rank's lane sends to other nodes
  std::optional<collectives::Packing> packing_;
  std::vector<Tensor> brought_;  ///< values that were on GPUs
  std::vector<collectives::Segment> segments_;
  bool writes_outputs_ = false;
  std::optional<OptimizerConsumer> consumer_;
  std::optional<Tensor> merged_;  ///< whole sums, of all keys of a push
  Sample sample_;
  std::uint64_t healed_ = 0;
};

}  // namespace tutti
