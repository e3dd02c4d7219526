// SPDX-License-Identifier: Apache-2.0
// The plan of a push: its keys and their values, in the order of updates.
//
// Training pushes the same list in every step, so the plan of the last push is kept, and the next
// push of the same keys looks nothing up. Everything that pushes keep between calls belongs to the
// plan and is valid as long as the plan is: also the addresses that were found to lie in no replica
// (PushItem::known_apart), and the launches of a push on GPUs (DevicePush).
//
// A loop that pushes key by key has another list each time. The look-ups of such a push are kept
// with its key (Entry::alone).
//
// A push with a plan does not look at keys, their memory or the rule of update again. So
// every call of the store drops the plan, unless it says that it keeps it: see CallScope.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/kvstore.hpp"

#include "runtime/job/group.hpp"
#include "runtime/store/core/key_table.hpp"

namespace tutti {

/// One distinct key of a push.
struct PushItem {
  Entry* entry;
  std::vector<ConstTensorView> values;
  /// a value that was found to lie in no replica of the store
  mutable const std::byte* known_apart = nullptr;
};

class PushPlan {
 public:
  PushPlan(Group& group, KeyTable& table) : group_(group), table_(table) {}

  /// Looks the keys up and orders them: numbers ascending, strings by their init. A list of the
  /// same keys as last time, with one value each, costs little: training pushes it every step.
  /// Errors: invalid_argument for an unknown or row-sparse key, a value whose shape or dtype is not
  /// its key's; those of resolve().
  void take(const Keys& keys, const Values& values);
  /// Plans the items of an asynchronous call, one per key. Errors: those of the other take().
  void take(std::vector<PushItem> items, const char* call);
  /// Notes that the value of a key lies in no replica: until a key is added, pushes need not check
  /// it again.
  void note_apart(PushItem& item, const std::byte* value);
  /// Drops the plan: the next push makes a new one. Memory that values keep alive is released.
  void drop();

  [[nodiscard]] std::span<PushItem> items() { return items_; }
  [[nodiscard]] std::span<const PushItem> items() const { return items_; }
  /// The items' entries, one by one.
  [[nodiscard]] std::span<Entry* const> entries() const { return entries_; }
  /// True if any key is on a GPU.
  [[nodiscard]] bool is_on_gpu() const { return is_on_gpu_; }
  /// True if this push has the plan of the last one as it is: the same keys, with one value each,
  /// in the same memory.
  [[nodiscard]] bool is_reused() const { return is_reused_; }
  /// True if the last push had the same keys, with one value each, wherever these lay.
  [[nodiscard]] bool has_same_keys() const { return has_same_keys_; }
  /// A number that differs from plan to plan, but for one that is reused.
  [[nodiscard]] std::uint64_t number() const { return number_; }
  /// Digest of keys, shapes and dtypes, in the order of the items.
  [[nodiscard]] std::uint64_t digest() const { return digest_; }
  /// Bytes of one value of each key.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// The totals of pushes of this list.
  [[nodiscard]] collectives::CallTotals& totals() const { return *totals_; }

 private:
  bool take_again(const Keys& keys, const Values& values);
  bool take_one(const Keys& keys, const Values& values);
  void remember(const Keys& keys, const Values& values);
  void arrange();

  Group& group_;
  KeyTable& table_;
  std::vector<PushItem> items_;
  std::vector<Entry*> entries_;
  std::vector<Key> keys_;  ///< the last list, if its keys were distinct and had one value each
  std::vector<std::size_t> places_;      ///< the index in items_ of each of keys_
  std::vector<ConstTensorView> values_;  ///< the value of each of keys_ in the last push
  std::uint64_t number_ = 0;
  std::uint64_t digest_ = 0;
  std::uint64_t bytes_ = 0;
  collectives::CallTotals* totals_ = nullptr;
  bool is_reused_ = false;
  bool has_same_keys_ = false;
  bool is_on_gpu_ = false;
};

}  // namespace tutti
