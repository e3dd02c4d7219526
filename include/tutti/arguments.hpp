// SPDX-License-Identifier: Apache-2.0
// The arguments of a store's calls: keys and values, as one, a list, or a list of lists.
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <ranges>
#include <span>
#include <type_traits>
#include <vector>

#include "tutti/key.hpp"
#include "tutti/tensor.hpp"

namespace tutti {

/// One key, or a list of keys. An argument type: it refers to the objects that it was made from and
/// is not kept beyond the call.
class Keys {
 public:
  template <class One>
  requires std::convertible_to<const One&, Key> Keys(const One& key) : one_(key) {}  // NOLINT
  Keys(std::initializer_list<Key> keys) : list_(keys.begin(), keys.size()) {}        // NOLINT
  template <class Contiguous>
  requires(std::convertible_to<const Contiguous&, std::span<const Key>>)
      Keys(const Contiguous& keys)
      : list_(keys) {}  // NOLINT
  template <std::ranges::input_range Range>
  requires(!std::convertible_to<const Range&, Key> &&
           !std::convertible_to<const Range&, std::span<const Key>> &&
           std::convertible_to<std::ranges::range_reference_t<const Range>, Key>)
      Keys(const Range& keys)
      : owned_(std::ranges::begin(keys), std::ranges::end(keys)) {  // NOLINT
    list_ = owned_;
  }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  /// True for `push(3, ...)`, false for `push({3}, ...)`: one key takes the whole value list.
  [[nodiscard]] bool is_single() const noexcept { return one_.has_value(); }
  [[nodiscard]] std::span<const Key> list() const noexcept {
    return one_ ? std::span<const Key>(&*one_, 1) : list_;
  }

 private:
  std::optional<Key> one_;
  std::vector<Key> owned_;
  std::span<const Key> list_;
};

/// One tensor, a list of tensors, or a list of lists (several devices' values per key). An
/// argument type, like Keys.
template <class View>
class TensorList {
 public:
  template <class One>
  requires(std::convertible_to<One&&, View>) TensorList(One&& tensor)
      : one_(std::forward<One>(tensor)) {}         // NOLINT: implicit on purpose
  TensorList(std::initializer_list<View> tensors)  // NOLINT
      : flat_(tensors.begin(), tensors.size()) {}
  template <int = 0>  // a template, so that {{a}, {b}}, which could mean either, is not ambiguous
  TensorList(std::initializer_list<std::initializer_list<View>> lists) : nested_(true) {  // NOLINT
    for (const auto& list : lists) append(list);
    flat_ = owned_;
  }
  template <class Contiguous>
  requires(std::convertible_to<const Contiguous&, std::span<const View>>)
      TensorList(const Contiguous& tensors)
      : flat_(tensors) {}  // NOLINT: implicit on purpose
  template <class Range>
  requires(std::ranges::input_range<Range> && !std::convertible_to<Range&&, View> &&
           !std::convertible_to<Range&&, std::span<const View>> &&
           std::convertible_to<std::ranges::range_reference_t<Range>, View>)
      TensorList(Range&& tensors) {  // NOLINT: implicit on purpose
    append(tensors);
    flat_ = owned_;
  }
  template <class Range>
  requires(std::ranges::input_range<Range>&&
               std::ranges::input_range<std::ranges::range_reference_t<Range>> &&
           !std::convertible_to<std::ranges::range_reference_t<Range>, View> &&
           std::convertible_to<
               std::ranges::range_reference_t<std::ranges::range_reference_t<Range>>, View>)
      TensorList(Range&& lists)
      : nested_(true) {  // NOLINT: implicit on purpose
    for (auto&& list : lists) append(list);
    flat_ = owned_;
  }
  TensorList(const TensorList&) = delete;
  TensorList& operator=(const TensorList&) = delete;

  /// True if the argument was a list of lists: groups() then has one entry per inner list.
  [[nodiscard]] bool is_nested() const noexcept { return nested_; }

  /// All tensors, in the order given.
  [[nodiscard]] std::span<const View> flat() const noexcept {
    return one_ ? std::span<const View>(&*one_, 1) : flat_;
  }
  /// Lengths of the inner lists; empty unless is_nested().
  [[nodiscard]] std::span<const std::size_t> groups() const noexcept { return groups_; }

 private:
  template <class Range>
  void append(Range&& tensors) {
    const std::size_t before = owned_.size();
    for (auto&& tensor : tensors) owned_.emplace_back(static_cast<View>(tensor));
    if (nested_) groups_.push_back(owned_.size() - before);
  }

  std::optional<View> one_;
  std::vector<View> owned_;
  std::span<const View> flat_;
  std::vector<std::size_t> groups_;
  bool nested_ = false;
};

using Values = TensorList<ConstTensorView>;
using Outputs = TensorList<TensorView>;

}  // namespace tutti
