// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/core/push_plan.hpp"

#include <algorithm>
#include <unordered_map>

#include "tutti/error.hpp"

#include "runtime/base/same_tensor.hpp"
#include "runtime/store/core/call_totals.hpp"
#include "runtime/store/core/resolve.hpp"

namespace tutti {

namespace {

void require_dense(const Entry& entry) {
  if (!entry.is_row_sparse()) return;
  throw Error(ErrorCode::invalid_argument, to_string(entry.key, entry.shape(), entry.dtype()) +
                                               " is row-sparse; push it a RowSparse value");
}

bool has_one_each(const Keys& keys, const Values& values) {
  return !keys.list().empty() && !values.is_nested() && values.flat().size() == keys.list().size();
}

}  // namespace

bool PushPlan::take_again(const Keys& keys, const Values& values) {
  const auto list = keys.list();
  const auto tensors = values.flat();
  if (!has_one_each(keys, values) || !std::ranges::equal(list, keys_)) return false;
  is_reused_ = std::ranges::equal(tensors, values_, are_one);
  if (is_reused_) return true;
  values_.clear();  // in case a value is refused
  for (std::size_t i = 0; i < list.size(); ++i) {
    PushItem& item = items_[places_[i]];
    require_usable(list[i], tensors[i]);
    require_like(*item.entry, tensors[i], "a value");
    item.values.clear();
    item.values.emplace_back(tensors[i]);
  }
  for (const ConstTensorView& tensor : tensors) values_.emplace_back(tensor);
  return true;
}

/// Plans a push of one value of one key, like take(), but without lists.
bool PushPlan::take_one(const Keys& keys, const Values& values) {
  if (keys.list().size() != 1 || !has_one_each(keys, values)) return false;
  const Key& key = keys.list().front();
  const ConstTensorView& value = values.flat().front();
  keys_.clear();
  require_usable(key, value);
  Entry& entry = table_.at(key);
  require_dense(entry);
  require_like(entry, value, "a value");
  Entry* const only = &entry;
  Entry::Alone& alone = entry.alone;
  if (alone.push == nullptr) {
    alone.digest = digest_of({&only, 1});
    alone.push = &totals_of(group_.engine().statistics(), "push", std::span(&only, 1));
  }
  items_.resize(1);
  PushItem& item = items_.front();
  item.entry = &entry;
  item.values.clear();
  item.values.emplace_back(value);
  item.known_apart = alone.keys_then == table_.size() ? alone.known_apart : nullptr;
  entries_.assign(1, &entry);
  digest_ = alone.digest;
  bytes_ = entry.replica.size_bytes();
  is_on_gpu_ = entry.is_on_gpu();
  totals_ = alone.push;
  places_.assign(1, 0);
  values_.clear();
  values_.emplace_back(value);
  keys_.assign(1, key);  // last: keys tell take() that there is a plan
  return true;
}

void PushPlan::drop() {
  ++number_;
  keys_.clear();
  values_.clear();
  items_.clear();
  entries_.clear();
}

void PushPlan::note_apart(PushItem& item, const std::byte* value) {
  item.known_apart = value;
  item.entry->alone.known_apart = value;
  item.entry->alone.keys_then = table_.size();
}

void PushPlan::take(const Keys& keys, const Values& values) {
  is_reused_ = false;
  has_same_keys_ = take_again(keys, values);
  if (!is_reused_) ++number_;
  if (has_same_keys_) return;
  if (take_one(keys, values)) return;
  keys_.clear();
  values_.clear();
  items_.clear();
  entries_.clear();
  auto groups = resolve(keys, values);
  for (auto& [key, tensors] : groups) items_.push_back({&table_.at(key), std::move(tensors)});
  arrange();
  totals_ = &totals_of(group_.engine().statistics(), "push", entries_);
  remember(keys, values);
}

/// Plans a batch. Its keys are chosen by chance, so all batches are counted together.
void PushPlan::take(std::vector<PushItem> items, const char* call) {
  drop();
  is_reused_ = has_same_keys_ = false;
  values_.clear();
  entries_.clear();
  items_ = std::move(items);
  arrange();
  totals_ = &totals_of(group_.engine().statistics(), call, std::span<Entry* const>());
}

void PushPlan::arrange() {
  for (const PushItem& item : items_) {
    require_dense(*item.entry);
    for (const ConstTensorView& value : item.values) require_like(*item.entry, value, "a value");
  }
  std::sort(items_.begin(), items_.end(), [](const PushItem& left, const PushItem& right) {
    return before(*left.entry, *right.entry);
  });
  for (const PushItem& item : items_) entries_.push_back(item.entry);
  digest_ = digest_of(entries_);
  bytes_ = bytes_of(entries_);
  is_on_gpu_ = std::ranges::any_of(entries_, &Entry::is_on_gpu);
}

/// Remembers a list of distinct keys with one value each. The keys are set last: they tell take()
/// that there is a plan.
void PushPlan::remember(const Keys& keys, const Values& values) {
  const auto list = keys.list();
  if (!has_one_each(keys, values) || items_.size() != list.size()) return;
  std::unordered_map<Key, std::size_t> place;
  for (std::size_t i = 0; i < items_.size(); ++i) place[items_[i].entry->key] = i;
  places_.clear();
  for (const Key& key : list) places_.push_back(place.at(key));
  for (const ConstTensorView& tensor : values.flat()) values_.emplace_back(tensor);
  keys_.assign(list.begin(), list.end());
}

}  // namespace tutti
