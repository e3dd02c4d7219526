// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/key_table.hpp"

#include "tutti/error.hpp"

namespace tutti {

std::string in_words(const Key& key, const Shape& shape, DType dtype) {
  return "key " + to_string(key) + " " + to_string(shape) + " " + to_string(dtype);
}

void KeyTable::require_kind(const Key& key) const {
  if (entries_.empty()) return;
  const bool strings = entries_.begin()->first.is_string();
  if (key.is_string() == strings) return;
  throw Error(ErrorCode::invalid_argument,
              "key " + to_string(key) + " is " + (strings ? "a number" : "a string") +
                  ", but this store's keys are " + (strings ? "strings" : "numbers") +
                  "; a store holds keys of one kind");
}

const Entry& KeyTable::at(const Key& key) const {
  const auto found = entries_.find(key);
  if (found != entries_.end()) return found->second;
  require_kind(key);
  throw Error(ErrorCode::invalid_argument, "key " + to_string(key) +
                                               " is unknown; init it first (the store holds " +
                                               std::to_string(entries_.size()) + " keys)");
}

Entry& KeyTable::at(const Key& key) {
  return const_cast<Entry&>(static_cast<const KeyTable*>(this)->at(key));
}

Entry* KeyTable::find(const Key& key) {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

void KeyTable::require_new(const Key& key) const {
  require_kind(key);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  throw Error(ErrorCode::invalid_argument,
              in_words(key, found->second.shape(), found->second.dtype()) +
                  " exists already; a key is initialised once");
}

void KeyTable::insert(Entry entry) {
  const std::byte* begin = entry.replica.bytes();
  extents_[begin] = begin + entry.replica.size_bytes();
  const Key key = entry.key;
  entries_.emplace(key, std::move(entry));
}

bool KeyTable::holds(const std::byte* memory) const {
  const auto after = extents_.upper_bound(memory);
  return after != extents_.begin() && memory < std::prev(after)->second;
}

}  // namespace tutti
