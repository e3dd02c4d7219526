// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/core/key_table.hpp"

#include <algorithm>
#include <cstdio>

#include "tutti/error.hpp"

#include "runtime/base/digest.hpp"

namespace tutti {

namespace {

constexpr std::size_t kKeysInWords = 6;

}  // namespace

std::string to_string(const Key& key, const Shape& shape, DType dtype) {
  return "key " + to_string(key) + " " + to_string(shape) + " " + to_string(dtype);
}

void throw_invalid_argument(const Entry& entry, const std::string& why) {
  throw Error(ErrorCode::invalid_argument,
              to_string(entry.key, entry.shape(), entry.dtype()) + ": " + why);
}

void require_shape(const Entry& entry, const ConstTensorView& tensor, const char* what) {
  if (tensor.shape() == entry.shape()) return;
  throw_invalid_argument(entry, std::string(what) + " has shape " + to_string(tensor.shape()) +
                                    ", expected " + to_string(entry.shape()));
}

void require_dtype(const Entry& entry, const ConstTensorView& tensor, const char* what) {
  if (tensor.dtype() == entry.dtype()) return;
  throw_invalid_argument(entry, std::string(what) + " has dtype " + to_string(tensor.dtype()) +
                                    ", expected " + to_string(entry.dtype()));
}

bool before(const Entry& left, const Entry& right) {
  return left.key.is_string() ? left.order < right.order : left.key < right.key;
}

std::uint64_t digest_of(std::span<Entry* const> entries) {
  Digest digest;
  for (const Entry* entry : entries) {
    digest.add(entry->key).add(entry->shape(), entry->dtype());
    if (entry->is_row_sparse()) digest.add(std::string_view("row-sparse"));
    if (entry->is_on_gpu()) digest.add(std::string_view("gpu"));
  }
  return digest.value();
}

std::string call_to_string(const char* call, std::span<Entry* const> entries) {
  std::string text = std::string(call) + " of ";
  if (entries.size() != 1) text += std::to_string(entries.size()) + " keys";
  for (std::size_t i = 0; i < std::min(entries.size(), kKeysInWords); ++i) {
    if (entries.size() != 1) text += i == 0 ? ": " : ", ";
    text += to_string(entries[i]->key, entries[i]->shape(), entries[i]->dtype());
    if (entries[i]->is_on_gpu()) text += " on a GPU";
  }
  if (entries.size() > kKeysInWords) {
    char rest[64];
    std::snprintf(rest, sizeof rest, ", ... (digest %016llx)",
                  static_cast<unsigned long long>(digest_of(entries)));
    text += rest;
  }
  return text;
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
              to_string(key, found->second.shape(), found->second.dtype()) +
                  " exists already; a key is initialised once");
}

void KeyTable::insert(Entry entry) {
  const std::byte* begin = entry.replica.bytes();
  const std::byte* end = begin + entry.replica.size_bytes();
  const Key key = entry.key;
  entries_.emplace(key, std::move(entry));
  extents_[begin] = end;
}

void KeyTable::count_updates(std::span<Entry* const> entries) {
  for (Entry* entry : entries) most_updates_ = std::max(most_updates_, ++entry->updates);
}

void KeyTable::recount() {
  most_updates_ = 0;
  for (const auto& [key, entry] : entries_) most_updates_ = std::max(most_updates_, entry.updates);
}

KeyTable::Gap KeyTable::gap_around(const std::byte* memory) const {
  const auto after = extents_.upper_bound(memory);
  Gap gap;
  gap.has_end = after != extents_.end();
  if (gap.has_end) gap.end = after->first;
  if (after != extents_.begin()) gap.begin = std::prev(after)->second;
  return gap.has(memory) ? gap : Gap{};
}

std::vector<Entry*> KeyTable::in_order() {
  std::vector<Entry*> entries;
  for (auto& [key, entry] : entries_) entries.push_back(&entry);
  std::ranges::sort(entries, {}, [](const Entry* entry) { return entry->order; });
  return entries;
}

}  // namespace tutti
