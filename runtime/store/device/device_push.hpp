// SPDX-License-Identifier: Apache-2.0
// A push of keys whose replicas are on GPUs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/gpu/gpus.hpp"
#include "runtime/gpu_sum/sum_over_ranks.hpp"
#include "runtime/job/group.hpp"
#include "runtime/store/core/gradient_compression.hpp"
#include "runtime/store/core/push_plan.hpp"
#include "runtime/store/core/push_protocol.hpp"
#include "runtime/store/core/updates.hpp"
#include "runtime/store/device/compressed_push.hpp"
#include "runtime/store/device/device_squares.hpp"
#include "runtime/store/device/update_rounds.hpp"

namespace tutti {

/// See push_protocol.hpp. One rank: sum and update are one launch per GPU, whatever the number of
/// keys. Several ranks: the values are summed into a bucket, the bucket over the ranks, and the
/// update reads the bucket; or, if the reducer has windows that the sums of values fit into, the
/// update reads these of all ranks. The sum of values goes from left to right, in the order given.
/// Under a compression the bucket is summed by the hosts: see CompressedPush.
class DevicePush {
 public:
  DevicePush(const std::shared_ptr<Group>& group, PushPlan& plan, KeyTable& table,
             const UpdateRule& rule, const GradientCompression& compression)
      : group_(*group),
        plan_(plan),
        table_(table),
        rule_(rule),
        compression_(compression),
        announcement_(rule, compression),
        sum_over_ranks_(group),
        compressed_push_(*group, compression) {}

  /// Everything that may fail on this rank alone: memory, and copies of values that are elsewhere.
  /// What was made ready for the last push stands, if this one has the same plan.
  /// Errors  invalid_argument: keys on GPUs and on the cpu in one list, or, with several ranks, on
  ///         two GPUs; a dtype that the compression does not pack; an optimizer that has no
  ///         kernels or does not take the dtype. out_of_memory.
  void take();

  /// No replica changes before all ranks have agreed, and without a compression no bucket.
  void agree();
  void prepare() {}
  void sum();
  /// What goes wrong, also in an updater, fails the group.
  void update();

  /// Throws what has gone wrong with earlier pushes; waits for nothing.
  void check() { sum_over_ranks_.check(); }

  /// After a failure: to free what a stream uses would wait for the stream.
  void leak_until_exit();

 private:
  /// Where a key's sum is made.
  struct Summed {
    std::byte* place = nullptr;
    std::int64_t row = -1;   ///< of `sums`; -1: the reducer reads the value itself,
    std::int64_t part = -1;  ///< as this part
  };

  /// Where the sums of large keys are made, from the end of the small ones on.
  struct LargeSums {
    std::vector<std::size_t> round;   ///< of every key
    std::vector<std::size_t> offset;  ///< of a large one
    std::vector<bool> is_large;
    std::size_t bytes = 0;
  };

  /// The keys of the push that are on one GPU. Row i of an update by an optimizer is entries[i].
  struct Work {
    std::vector<Entry*> entries;
    std::vector<gpus::TensorRow> sums;     ///< rows that sum values; none if updates take them
    std::vector<gpus::TensorRow> updates;  ///< rows that change replicas
    std::vector<Summed> summed;            ///< of each entry, if there are sums
    std::vector<UpdateStep> steps;
    std::uint64_t optimizer = 0;    ///< fingerprint of the optimizer that made the steps
    std::vector<Tensor> moved;      ///< values that were elsewhere
    std::optional<Tensor> bucket;   ///< the sums of all keys
    std::vector<gpus::Part> parts;  ///< what the bucket holds
    UpdateRounds rounds;            ///< none: all keys are summed, then updated
    bool reads_windows = false;     ///< updates sum over the ranks; see gpus::Reducer
    std::unique_ptr<gpus::LaunchTable> summing;
    std::unique_ptr<gpus::LaunchTable> updating;
    std::unique_ptr<DeviceSquares> squares;                   ///< with a GradientScaler
    std::vector<std::unique_ptr<gpus::LaunchTable>> partial;  ///< tables for keys with many values
    std::size_t num_partial = 0;                              ///< how many of them this push uses
    std::size_t num_replaced = 0;                             ///< rows with a new input
  };

  void take_launches();
  void stage_compressed();
  void sum_compressed();
  [[nodiscard]] bool needs_sums() const;
  /// GPUs that pack sum the values themselves.
  [[nodiscard]] bool sums_values() const {
    return needs_sums() && !compressed_push_.packs_on_gpu();
  }
  [[nodiscard]] bool is_apart(const std::byte* memory);
  [[nodiscard]] bool replace_inputs();
  [[nodiscard]] bool takes_launches_again();
  void add(const PushItem& item);
  [[nodiscard]] const std::byte* value_on(int device, const PushItem& item, std::size_t index,
                                          Work& work);
  void add_inputs(int device, const PushItem& item, Work& work);
  void lay_out(int device, Work& work);
  void lay_out_bucket(int device, Work& work);
  static void add_sum(Work& work, std::size_t i, std::byte* to);
  void lay_out_large(const LargeSums& large, std::byte* place, Work& work);
  [[nodiscard]] LargeSums large_sums(const Work& work) const;
  [[nodiscard]] bool assigns() const;
  [[nodiscard]] bool is_laid_out_directly(const Work& work, const gpus::TensorRow& row) const;
  [[nodiscard]] bool fits_windows(const Work& work) const;
  void read_windows(int device, Work& work);
  [[nodiscard]] bool has_window() const;
  void start(Work& work);
  void prepare(int device, Work& work);
  void sum_values_on(int device, Work& work);
  void sum_on(int device, Work& work);
  template <class Step>
  void in_range(Step step);
  /// A step after the ranks have agreed: what it throws, also want of memory, fails the group.
  template <class Step>
  void or_fail(Step step) {
    gpus::carry_out(group_, step, [] {});
  }
  /// False if the gradients are not finite. See GradientScaler. Waits for the GPUs.
  [[nodiscard]] bool scale_gradients();
  void await_squares(int device, const DeviceSquares& squares);
  void update_on(int device, Work& work);
  void launch_update(int device, Work& work);
  [[nodiscard]] std::uint64_t most_updates() const;
  void set_steps(const Optimizer& optimizer, Work& work);
  void call_updater(const Updater& updater, int device, Work& work);

  Group& group_;
  PushPlan& plan_;
  KeyTable& table_;
  const UpdateRule& rule_;
  const GradientCompression& compression_;
  PushAnnouncement announcement_;
  gpus::SumOverRanks sum_over_ranks_;
  CompressedPush compressed_push_;
  std::shared_ptr<gpus::Gpus> gpus_;
  std::optional<gpus::NamedRange> range_;
  std::map<int, Work> work_;
  double gradient_factor_ = 1;      ///< of the GradientScaler
  std::uint64_t most_updates_ = 0;  ///< of any key, with this push; 0 without a schedule
  bool has_launches_ = false;       ///< the plan's launches stand; false if a value had to be moved
  std::uint64_t launched_plan_ = 0;  ///< the number of the plan that these are of
  gpus::SumTraits traits_;           ///< that keys are laid out for
  bool may_shrink_ = false;          ///< the bucket, which had large keys
  KeyTable::Gap gap_;                ///< memory that is part of no replica, while the plan is good
};

}  // namespace tutti
