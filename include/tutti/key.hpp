// SPDX-License-Identifier: Apache-2.0
// Keys, under which a store holds its values.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "tutti/export.h"

namespace tutti {

/// A 64-bit integer or a string. A store holds keys of one kind: the first call fixes which.
class Key {
 public:
  /// Errors  invalid_argument: an unsigned number above 2^63 - 1.
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool> && !std::same_as<Integer, char>) Key(Integer number)
      : value_(static_cast<std::int64_t>(number)) {  // NOLINT: implicit on purpose
    if constexpr (std::unsigned_integral<Integer> && sizeof(Integer) >= sizeof(std::int64_t)) {
      constexpr auto kMost = static_cast<Integer>(std::numeric_limits<std::int64_t>::max());
      if (number > kMost) throw_too_large(static_cast<std::uint64_t>(number));
    }
  }

  template <class Text>
  requires(std::convertible_to<const Text&, std::string_view> && !std::integral<Text> &&
           !std::same_as<std::remove_cvref_t<Text>, std::nullptr_t>)
      Key(const Text& text)  // NOLINT: implicit on purpose
      : value_(std::string(std::string_view(text))) {}

  [[nodiscard]] bool is_string() const noexcept { return value_.index() == 1; }

  /// The number or the text. Calling the one that the key does not hold throws
  /// std::bad_variant_access.
  [[nodiscard]] std::int64_t number() const { return std::get<std::int64_t>(value_); }
  [[nodiscard]] const std::string& text() const { return std::get<std::string>(value_); }

  friend bool operator==(const Key&, const Key&) = default;
  friend auto operator<=>(const Key&, const Key&) = default;

 private:
  [[noreturn]] TUTTI_API static void throw_too_large(std::uint64_t number);

  std::variant<std::int64_t, std::string> value_;
};

/// The key as it is printed: 3, or "fc1.weight" without quotes.
TUTTI_API std::string to_string(const Key& key);

}  // namespace tutti

template <>
struct std::hash<tutti::Key> {
  TUTTI_API std::size_t operator()(const tutti::Key& key) const noexcept;
};
