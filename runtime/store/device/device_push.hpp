// SPDX-License-Identifier: Apache-2.0
// A push of keys whose replicas are on GPUs.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "runtime/gpu/gpus.hpp"
#include "runtime/gpu_sum/sum_over_ranks.hpp"
#include "runtime/job/group.hpp"
#include "runtime/store/core/push_plan.hpp"
#include "runtime/store/core/push_protocol.hpp"
#include "runtime/store/core/store_state.hpp"
#include "runtime/store/device/compressed_push.hpp"
#include "runtime/store/device/device_keys.hpp"

namespace tutti {

/// A push on GPUs: see push_protocol.hpp, and device_push.cpp for its ways. A key's values are
/// summed from left to right, in the order given.
class DevicePush {
 public:
  DevicePush(const StoreState& store, PushPlan& plan)
      : group_(*store.group),
        plan_(plan),
        store_(store),
        announcement_(store.rule, store.compression),
        sum_over_ranks_(store.group),
        compressed_push_(group_, store.compression) {}

  /// Takes the steps that may fail on this rank alone: memory, and copies of values that are
  /// elsewhere. The launches of the last push are used again if this one has the same plan.
  /// Errors  invalid_argument: keys on GPUs and on the cpu in one list, or, with several ranks, on
  ///         two GPUs; a dtype that the compression does not pack; an optimizer that has no
  ///         kernels or does not take the dtype. out_of_memory.
  /// `turn` begins, where sums take turns; it ends with the call.
  void take(gpus::SumTurn& turn);

  /// Before all ranks have agreed no replica changes, and without a compression no bucket.
  void agree();
  void prepare() {}
  /// Returns when the launches are in the GPUs' streams, and all messages are through. Errors, also
  /// those of an updater, fail the group.
  void sum_and_update();

  /// Throws the error of an earlier push; waits for nothing.
  void check() { sum_over_ranks_.check(); }

  /// Keeps memory of streams until the process ends, after a failure: freeing it would wait for the
  /// streams.
  void leak_until_exit();

 private:
  // Steps before the ranks agree.
  [[nodiscard]] bool needs_sums() const;
  [[nodiscard]] bool sums_values() const;
  [[nodiscard]] LayoutTraits layout_traits() const;
  [[nodiscard]] bool takes_launches_again();
  [[nodiscard]] bool replace_values();
  void take_launches();
  void add(const PushItem& item);
  [[nodiscard]] const std::byte* value_on(DeviceKeys& keys, const PushItem& item,
                                          const ConstTensorView& value);
  [[nodiscard]] bool is_apart(const std::byte* memory);
  void stage_compressed();

  // Steps after they have agreed.
  void sum();
  void sum_compressed();
  [[nodiscard]] std::optional<double> gradient_factor();
  void await_squares(const DeviceKeys& keys);
  [[nodiscard]] std::uint64_t most_updates() const;
  void update(DeviceKeys& keys, std::uint64_t most_updates, double factor);
  void call_updater(const Updater& updater, DeviceKeys& keys);

  /// Calls body(), whose error fails the group, even a lack of memory: all ranks have agreed by
  /// then.
  template <class Body>
  void or_fail(Body body) {
    gpus::carry_out(group_, body, [] {});
  }
  /// Calls body(keys of a GPU) for each GPU that has keys of this push.
  template <class Body>
  void for_each_gpu(Body body) {
    for (auto& [device, keys] : keys_) {
      if (!keys.empty()) body(keys);
    }
  }
  /// Calls body(entry, its GPU's keys, its index there) in the order of the push.
  template <class Body>
  void for_each_key(Body body) {
    std::map<int, std::size_t> next;
    for (Entry* entry : plan_.entries()) {
      const int device = entry->replica.device().index;
      body(*entry, keys_.at(device), next[device]++);
    }
  }

  Group& group_;
  PushPlan& plan_;
  const StoreState store_;
  PushAnnouncement announcement_;
  gpus::SumOverRanks sum_over_ranks_;
  CompressedPush compressed_push_;
  std::shared_ptr<gpus::Gpus> gpus_;
  std::map<int, DeviceKeys> keys_;  ///< keys of each GPU
  /// True if the plan's launches stay valid; false if a value had to be moved.
  bool has_launches_ = false;
  std::uint64_t launched_plan_ = 0;  ///< number of the plan of these launches
  gpus::SumTraits sum_traits_;       ///< traits that keys are laid out for
  bool may_shrink_ = false;          ///< true if the bucket had large keys
  KeyTable::Gap gap_;                ///< memory that is part of no replica, while the plan is valid
};

}  // namespace tutti
