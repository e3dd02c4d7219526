// SPDX-License-Identifier: Apache-2.0
// The table of a store's keys, with all that the store holds for each.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tutti/key.hpp"
#include "tutti/tensor.hpp"

namespace tutti {

namespace collectives {
struct CallTotals;
}

/// One key: this rank's replica, and the data that updates and pushes of the key keep.
struct Entry {
  Key key;
  std::size_t order;  ///< the number of keys that were initialised before it
  Tensor replica;
  std::uint64_t updates = 0;     ///< pushes since the optimizer was set
  std::vector<Tensor> states{};  ///< the optimizer's state tensors
  /// The sum of several values of one push; made when first needed.
  std::optional<Tensor> sum{};
  /// Values that gradient compression has yet to send from this rank.
  std::optional<Tensor> residual{};
  bool has_sent = false;          ///< true once a compressed push is complete, on all ranks
  std::shared_ptr<void> pages{};  ///< a row-sparse key's memory; null for a dense key

  /// How far ranks have compared this key: see Sample.
  struct Verified {
    std::size_t earned = 0;  ///< bytes that the next push may digest
    std::size_t tensor = 0;  ///< the tensor to go on with: 0 is the replica, then come the states
    std::size_t first = 0;   ///< the next byte of that tensor
  } verified{};

  /// The results of look-ups that pushes of this key by itself make once.
  struct Alone {
    std::uint64_t digest = 0;                 ///< digest_of() this entry
    collectives::CallTotals* push = nullptr;  ///< the totals of these pushes; null before the first
    /// A value that was found to lie in no replica of the store.
    const std::byte* known_apart = nullptr;
    std::size_t keys_then = 0;  ///< the number of keys when that was found
  } alone{};

  [[nodiscard]] const Shape& shape() const { return replica.shape(); }
  [[nodiscard]] DType dtype() const { return replica.dtype(); }
  void drop_residual() {
    residual.reset();
    has_sent = false;
  }
  [[nodiscard]] bool is_row_sparse() const { return pages != nullptr; }
  [[nodiscard]] bool is_on_gpu() const { return replica.device().kind == DeviceKind::gpu; }
};

/// The key for messages: "key 3 (2, 3) float32".
std::string to_string(const Key& key, const Shape& shape, DType dtype);

/// Throws invalid_argument, with the key and the reason.
[[noreturn]] void throw_invalid_argument(const Entry& entry, const std::string& why);

/// Errors  invalid_argument, naming the key and `what` the tensor is, if shape or dtype differ.
void require_shape(const Entry& entry, const ConstTensorView& tensor, const char* what);
void require_dtype(const Entry& entry, const ConstTensorView& tensor, const char* what);
/// Requires both the entry's shape and its dtype.
inline void require_like(const Entry& entry, const ConstTensorView& tensor, const char* what) {
  require_shape(entry, tensor, what);
  require_dtype(entry, tensor, what);
}

/// The order in which a push handles its keys: numbers ascending, strings by their init.
bool before(const Entry& left, const Entry& right);

/// Digest of keys, shapes, dtypes and kinds of storage and device, in order.
std::uint64_t digest_of(std::span<Entry* const> entries);

/// A call for messages: "push of key 3 (2, 3) float32", "push of 2 keys: key 5 ..., key 7 ...".
std::string call_to_string(const char* call, std::span<Entry* const> entries);

class KeyTable {
 public:
  /// Errors: invalid_argument for an unknown key, or a key of the other kind.
  [[nodiscard]] Entry& at(const Key& key);
  [[nodiscard]] const Entry& at(const Key& key) const;

  /// The entry of a key; null if there is none.
  [[nodiscard]] Entry* find(const Key& key);

  /// Errors: invalid_argument if the key exists or is of the other kind.
  void require_new(const Key& key) const;
  void insert(Entry entry);
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] auto begin() { return entries_.begin(); }
  [[nodiscard]] auto end() { return entries_.end(); }

  /// All entries, in the order of their init.
  [[nodiscard]] std::vector<Entry*> in_order();

  /// The largest update count of all keys, which schedules go by.
  [[nodiscard]] std::uint64_t most_updates() const { return most_updates_; }
  /// Notes that these keys of the table have been updated once more.
  void count_updates(std::span<Entry* const> entries);
  /// Finds most_updates() anew, after update counts were replaced, as by a load.
  void recount();

  /// The range of memory around an address that is part of no key's replica; empty if the address
  /// is in a replica. Valid until a key is added.
  struct Gap {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
    bool has_end = true;  ///< false: the range is open, since no replica follows
    [[nodiscard]] bool has(const std::byte* memory) const {
      return memory >= begin && (memory < end || !has_end);
    }
  };
  [[nodiscard]] Gap gap_around(const std::byte* memory) const;
  [[nodiscard]] bool holds(const std::byte* memory) const {
    return !gap_around(memory).has(memory);
  }

 private:
  void require_kind(const Key& key) const;

  std::unordered_map<Key, Entry> entries_;
  std::uint64_t most_updates_ = 0;
  std::map<const std::byte*, const std::byte*> extents_;  ///< begin of a replica -> its end
};

}  // namespace tutti
