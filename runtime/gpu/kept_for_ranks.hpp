// SPDX-License-Identifier: Apache-2.0
// Objects that ranks made together on one of this process's GPUs, and keep for the next group of
// the same ranks: NCCL's communicators, which take seconds to join, and memory that peers have
// opened.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::gpus {

/// The kept objects of one GPU. Any thread. Local: ranks find out by an item's id that they all
/// have the same one.
class KeptForRanks {
 public:
  struct Item {
    std::string what;        ///< the kind of object: "nccl"
    std::vector<int> ranks;  ///< ranks of the job, in the order of the group that made it
    std::uint64_t id = 0;    ///< equal on all these ranks, and never used again
    std::shared_ptr<void> made;
  };

  /// The item that was added or found last, among those that `is_usable` accepts.
  [[nodiscard]] std::optional<Item> find(
      const std::string& what, const std::vector<int>& ranks,
      const std::function<bool(const std::shared_ptr<void>& made)>& is_usable) {
    const std::lock_guard lock(mutex_);
    for (auto item = items_.rbegin(); item != items_.rend(); ++item) {
      if (item->what != what || item->ranks != ranks || !is_usable(item->made)) continue;
      std::rotate(std::prev(item.base()), item.base(), items_.end());
      return items_.back();
    }
    return std::nullopt;
  }
  void add(Item item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
  }
  /// Makes the object's item unknown to find(). Its users may go on.
  void forget(const void* made) {
    const std::lock_guard lock(mutex_);
    std::erase_if(items_, [&](const Item& item) { return item.made.get() == made; });
  }
  /// Takes out the items that nobody uses, but for the last `most` of this kind.
  [[nodiscard]] std::vector<std::shared_ptr<void>> take_idle(const std::string& what,
                                                             std::size_t most) {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<void>> taken;
    std::size_t idle = 0;
    for (std::size_t i = items_.size(); i-- > 0;) {
      Item& item = items_[i];
      if (item.what != what || item.made.use_count() > 1 || idle++ < most) continue;
      taken.push_back(std::move(item.made));
    }
    std::erase_if(items_, [](const Item& item) { return item.made == nullptr; });
    return taken;
  }

 private:
  std::mutex mutex_;
  std::vector<Item> items_;  ///< the item used last comes last
};

}  // namespace tutti::gpus
