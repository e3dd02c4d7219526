// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/core/resolve.hpp"

#include <unordered_map>

#include "tutti/error.hpp"

#include "runtime/base/throw.hpp"
#include "runtime/gpu/gpus.hpp"

namespace tutti {

namespace {

void require_usable(const Key& /*key*/, const RowSparseOutput& /*output*/) {}

template <class View>
void require_fit(const Keys& keys, const TensorList<View>& list) {
  const std::size_t num_keys = keys.list().size();
  const std::size_t num_lists = list.is_nested() ? list.groups().size() : list.flat().size();
  if (keys.is_single() && !list.is_nested()) return;  // one key takes the whole list
  if (num_lists == num_keys) return;
  throw_invalid_argument(std::to_string(num_keys) + " keys but " + std::to_string(num_lists) +
                         (list.is_nested() ? " lists of tensors" : " tensors") +
                         "; give one per key");
}

/// The tensors of the i-th key in the given list. `taken` counts the lists and tensors that are
/// used up.
template <class View>
std::span<const View> tensors_of(const Keys& keys, const TensorList<View>& list, std::size_t i,
                                 std::size_t& taken) {
  if (list.is_nested()) {
    const auto tensors = list.flat().subspan(taken, list.groups()[i]);
    taken += tensors.size();
    return tensors;
  }
  return keys.is_single() ? list.flat() : list.flat().subspan(i, 1);
}

template <class View>
std::vector<KeyGroup<View>> resolve_list(const Keys& keys, const TensorList<View>& list) {
  require_fit(keys, list);
  std::vector<KeyGroup<View>> groups;
  groups.reserve(keys.list().size());
  std::unordered_map<Key, std::size_t> index;
  const bool several = keys.list().size() > 1;
  std::size_t taken = 0;
  for (std::size_t i = 0; i < keys.list().size(); ++i) {
    const Key& key = keys.list()[i];
    if (key.is_string() != keys.list().front().is_string()) {
      throw_invalid_argument("keys " + to_string(keys.list().front()) + " and " + to_string(key) +
                             " are of different kinds; a store holds keys of one kind");
    }
    const auto tensors = tensors_of(keys, list, i, taken);
    if (tensors.empty()) throw_invalid_argument("key " + to_string(key) + " has no tensor");
    for (const View& tensor : tensors) require_usable(key, tensor);
    const auto [place, is_new] =
        several ? index.try_emplace(key, groups.size()) : std::pair(index.end(), true);
    if (is_new) {
      groups.push_back({key, {tensors.begin(), tensors.end()}});
    } else {
      auto& known = groups[place->second].tensors;
      for (const View& tensor : tensors) known.emplace_back(tensor);
    }
  }
  return groups;
}

}  // namespace

void require_usable(const Key& key, const ConstTensorView& tensor) {
  if (tensor.device().kind != DeviceKind::cpu && !gpus::is_here(tensor.device())) {
    static_cast<void>(gpus::require_gpus("key " + to_string(key), tensor.device()));
  }
  if (tensor.bytes() == nullptr && tensor.count() > 0) {
    throw_invalid_argument("key " + to_string(key) + ": a tensor without memory");
  }
}

void require_usable(const Key& key, const RowSparseView& rows) {
  require_usable(key, rows.ids());
  require_usable(key, rows.rows());
}

std::vector<KeyGroup<ConstTensorView>> resolve(const Keys& keys, const Values& values) {
  return resolve_list(keys, values);
}

std::vector<KeyGroup<TensorView>> resolve(const Keys& keys, const Outputs& outputs) {
  return resolve_list(keys, outputs);
}

std::vector<KeyGroup<RowSparseView>> resolve(const Keys& keys, const RowSparseValues& values) {
  return resolve_list(keys, values);
}

std::vector<KeyGroup<RowSparseOutput>> resolve(const Keys& keys, const RowSparseOutputs& outputs) {
  return resolve_list(keys, outputs);
}

}  // namespace tutti
