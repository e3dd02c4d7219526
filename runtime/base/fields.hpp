// SPDX-License-Identifier: Apache-2.0
// The fields of an options struct as data: what checks them, digests them, and reads and writes
// them as "name=value". Any struct can be described this way; nothing here knows what it is for.
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

/// The numbers that an option allows.
struct OptionBounds {
  bool (*hold)(double value);
  const char* text;  ///< "a number above 0"
};

namespace bounds {
extern const OptionBounds kFinite;
extern const OptionBounds kNotNegative;
extern const OptionBounds kPositive;
extern const OptionBounds kNormal;    ///< what a program multiplies by in float32
extern const OptionBounds kBelowOne;  ///< 0 <= value < 1: decays
extern const OptionBounds kUpToOne;   ///< 0 < value <= 1: factors of a rate
extern const OptionBounds kAtLeastOne;
extern const OptionBounds kNotBelowOne;  ///< factors that grow
}  // namespace bounds

/// An enum whose values are numbered 0, 1, ..., with the name of each. An enum is stored as a byte,
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
  /// False if no value has this name.
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

/// Errors  invalid_argument: "OWNER: NAME=VALUE: expected ...".
void check_field(const std::string& owner, const OptionField& field);
/// Sets a field. Errors: invalid_argument for a text that is no such value.
void read_field(const std::string& owner, const OptionField& field, const std::string& text);
/// The value as read_field() takes it.
std::string value_text(const OptionField& field);
void add(Digest& digest, const OptionField& field);

/// ",name=value,..."; "..." for a value that has to be given.
std::string options_text(const OptionFields& fields);
/// ",name=value" for each field whose value is not that of `defaults`. Both list the same fields.
std::string changes_text(const OptionFields& fields, const OptionFields& defaults);

/// The options of a text, as they are taken one by one.
class OptionWords {
 public:
  /// Both texts are ",option=value,..." or empty; `options` come before `defaults`.
  /// Errors  invalid_argument: a part that is not option=value, or an option given twice.
  OptionWords(std::string owner, std::string_view options, std::string_view defaults);

  /// Sets the fields that words name. Errors: invalid_argument for a value that cannot be read.
  void read(const OptionFields& fields);
  /// The value of an option that is not a field.
  std::optional<std::string> take(const std::string& option);

  /// An option that has not been taken, or null.
  [[nodiscard]] const std::string* left_over() const;
  /// True if this option was asked for, whether or not the text gives it.
  [[nodiscard]] bool knows(std::string_view option) const;
  /// Errors  invalid_argument: an option that was not taken, with the nearest and all known
  /// options.
  void require_all_read() const;
  /// Throws invalid_argument: "OWNER: WHY".
  [[noreturn]] void throw_invalid_argument(const std::string& why) const;

 private:
  using Map = std::map<std::string, std::string, std::less<>>;
  [[nodiscard]] Map split(std::string_view text) const;

  std::string owner_;
  Map words_;
  std::vector<std::string> known_;
};

/// "unknown WHAT 'NAME', did you mean NEAREST? There are: ..."
std::string unknown_name(const std::string& what, const std::string& name,
                         const std::vector<std::string>& known);
/// "one, two, three".
std::string comma_list(const std::vector<std::string>& names);

}  // namespace tutti
