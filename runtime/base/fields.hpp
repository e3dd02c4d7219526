// SPDX-License-Identifier: Apache-2.0
// OptionFields: the fields of an options struct as data, by which they are checked, digested, and
// read and written as "name=value". Any struct can be described this way.
//
//   OptionFields fields_of(TwoBit& options) {
//     return {{"threshold", &options.threshold, &bounds::kPositive}};
//   }
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "runtime/base/digest.hpp"

namespace tutti {

/// The range of values that an option allows.
struct OptionBounds {
  bool (*hold)(double value);
  const char* text;  ///< its description, such as "a number above 0"
};

namespace bounds {
extern const OptionBounds kFinite;
extern const OptionBounds kNotNegative;
extern const OptionBounds kPositive;
extern const OptionBounds kNormal;    ///< factors in float32, which must be normal numbers
extern const OptionBounds kBelowOne;  ///< 0 <= value < 1, such as decays
extern const OptionBounds kUpToOne;   ///< 0 < value <= 1, such as factors of a rate
extern const OptionBounds kAtLeastOne;
extern const OptionBounds kNotBelowOne;  ///< growth factors
}  // namespace bounds

/// An enum whose values are numbered 0, 1, ..., with their names. The enum is stored as a byte,
/// which may be written through a pointer of its own type.
class OptionChoice {
 public:
  template <class Enum>
  OptionChoice(Enum* value, std::span<const char* const> names)
      : number_(reinterpret_cast<std::uint8_t*>(value)), names_(names) {
    static_assert(std::is_same_v<std::underlying_type_t<Enum>, std::uint8_t>);
  }

  [[nodiscard]] const char* name() const { return names_[*number_]; }
  [[nodiscard]] std::span<const char* const> names() const { return names_; }
  /// Returns false if no value has this name.
  [[nodiscard]] bool set(std::string_view name) const;

 private:
  std::uint8_t* number_;
  std::span<const char* const> names_;
};

/// One member of an options struct.
struct OptionField {
  using Value = std::variant<double*, std::optional<double>*, bool*, std::uint64_t*,
                             std::vector<std::uint64_t>*, OptionChoice>;
  const char* name;
  Value value;
  const OptionBounds* bounds = &bounds::kFinite;
};
using OptionFields = std::vector<OptionField>;

/// Errors: invalid_argument, such as "OWNER: NAME=VALUE: expected ...".
void check_field(const std::string& owner, const OptionField& field);
/// Sets a field from a text. Errors: invalid_argument if the text is no such value.
void read_field(const std::string& owner, const OptionField& field, const std::string& text);
/// Returns the value as a text that read_field() accepts.
std::string value_text(const OptionField& field);
void add(Digest& digest, const OptionField& field);

/// Returns ",name=value,..."; the value of a required field is "...".
std::string options_text(const OptionFields& fields);
/// Returns ",name=value" for each field that differs from `defaults`. Both list the same fields.
std::string changes_text(const OptionFields& fields, const OptionFields& defaults);

/// The options of a text, which are taken from it one by one.
class OptionWords {
 public:
  /// Both texts are ",option=value,..." or empty; `options` override `defaults`. Errors:
  /// invalid_argument for a part that is not option=value, or an option that is given twice.
  OptionWords(std::string owner, std::string_view options, std::string_view defaults);

  /// Sets those fields that the text names. Errors: invalid_argument for a value that cannot be
  /// read.
  void read(const OptionFields& fields);
  /// Takes the value of an option that is not a field.
  std::optional<std::string> take(const std::string& option);

  /// Returns an option that has not been taken, or null.
  [[nodiscard]] const std::string* left_over() const;
  /// True if some call has asked for this option, whether or not the text has it.
  [[nodiscard]] bool knows(std::string_view option) const;
  /// Errors: invalid_argument if an option was not taken; names the nearest and all known options.
  void require_all_read() const;
  /// Throws invalid_argument with the text "OWNER: WHY".
  [[noreturn]] void throw_invalid_argument(const std::string& why) const;

 private:
  using Map = std::map<std::string, std::string, std::less<>>;
  [[nodiscard]] Map split(std::string_view text) const;

  std::string owner_;
  Map words_;
  std::vector<std::string> known_;
};

/// Returns "unknown WHAT 'NAME', did you mean NEAREST? There are: ..."
std::string unknown_name(const std::string& what, const std::string& name,
                         const std::vector<std::string>& known);
/// Returns a list such as "one, two, three".
std::string comma_list(const std::vector<std::string>& names);

}  // namespace tutti
