// SPDX-License-Identifier: Apache-2.0
// A store's pushes that go on while the program computes.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tutti/kvstore.hpp"
#include "tutti/pending.hpp"

#include "runtime/job/group.hpp"
#include "runtime/store/core/push_plan.hpp"
#include "runtime/store/core/resolve.hpp"
#include "runtime/store/core/store_state.hpp"
#include "runtime/store/dense/dense_push.hpp"
#include "runtime/store/dense/unheld_pushes.hpp"

namespace tutti {

/// Copies of pushed values in the arena, kept for the next push of the key. Any thread.
class StagedValues {
 public:
  explicit StagedValues(Group& group) : group_(group) {}

  /// A copy of the value. Errors: out_of_memory.
  Tensor take(const Entry& entry, const ConstTensorView& value);
  void give_back(std::size_t order, std::vector<Tensor> copies) noexcept;

 private:
  Group& group_;
  std::mutex mutex_;
  std::unordered_map<std::size_t, std::vector<Tensor>> free_;  ///< by the orders of keys
};

/// A store's asynchronous pushes: one queue per key, in the order of their init. A batch of keys is
/// one DensePush, with the same bits as a push of each key by itself. A large key has a DensePush
/// of its own, whose sum is made in slices.
class AsyncPushes : public AsyncClient {
 public:
  explicit AsyncPushes(const StoreState& store);
  ~AsyncPushes() override;
  AsyncPushes(const AsyncPushes&) = delete;
  AsyncPushes& operator=(const AsyncPushes&) = delete;

  /// The values that stay where they are until the push is complete, instead of being copied.
  enum class Stays { none, in_arena, all };
  /// Queues a push for each key. `outputs` may be null. Local. Errors: invalid_argument for an
  /// unknown key, and for numbers that do not fit together; a wrong value is an error on all ranks,
  /// at wait().
  Pending push(const Keys& keys, const Values& values, const Outputs* outputs, int priority,
               Stays stays);
  /// Queues pushes without a handle, and copies all values, from GPUs too. See UnheldPushes.
  void push_unheld(const Keys& keys, const Values& values, int priority, UnheldPushes& unheld);
  /// Returns when no push of this key is under way.
  void await(const Entry& entry) { calls_.await_queue(number_, entry.order); }

  /// Chunks of replicas healed so far, while no push is under way.
  [[nodiscard]] std::uint64_t healed() const { return push_.healed() + healed_in_slices_; }

  [[nodiscard]] std::size_t queues() const override { return store_.table.size(); }
  [[nodiscard]] std::string name_of_queue(std::size_t queue) const override;
  void carry_out(std::span<AsyncJob* const> jobs) override;
  void carry_slice(AsyncJob& job, std::size_t bytes) override;

 private:
  struct Job;
  struct Slices;
  [[nodiscard]] std::vector<AsyncCalls::Placed> jobs_of(const Keys& keys, const Values& values,
                                                        const Outputs* outputs, int priority,
                                                        Stays stays);
  [[nodiscard]] static PushItem item_of(const Job& job);
  void begin_slices(Job& job);
  void complete(Job& job);
  [[nodiscard]] ConstTensorView keep(Job& job, const ConstTensorView& value, Stays stays);

  Group& group_;
  const StoreState store_;
  AsyncCalls& calls_;
  PushPlan plan_;
  DensePush push_;
  std::shared_ptr<StagedValues> staged_;
  std::uint64_t healed_in_slices_ = 0;  ///< healed by pushes that are complete
  std::size_t number_;
};

}  // namespace tutti
