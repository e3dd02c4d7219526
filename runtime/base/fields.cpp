// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/fields.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "tutti/error.hpp"

#include "runtime/base/nearest_name.hpp"

namespace tutti {

namespace bounds {
const OptionBounds kFinite{[](double value) { return std::isfinite(value); }, "a finite number"};
const OptionBounds kNotNegative{[](double value) { return std::isfinite(value) && value >= 0; },
                                "a number of at least 0"};
const OptionBounds kPositive{[](double value) { return std::isfinite(value) && value > 0; },
                             "a number above 0"};
const OptionBounds kNormal{[](double value) {
                             using Limits = std::numeric_limits<float>;
                             return value >= double{Limits::min()} &&
                                    value <= double{Limits::max()};
                           },
                           "a number above 0, from 1.1754944e-38 to 3.4028234e38"};
const OptionBounds kBelowOne{[](double value) { return value >= 0 && value < 1; },
                             "a number from 0 to below 1"};
const OptionBounds kUpToOne{[](double value) { return value > 0 && value <= 1; },
                            "a number above 0, at most 1"};
const OptionBounds kAtLeastOne{[](double value) { return value >= 1; },
                               "a whole number of at least 1"};
const OptionBounds kNotBelowOne{[](double value) { return std::isfinite(value) && value >= 1; },
                                "a number of at least 1"};
}  // namespace bounds

namespace {

using Steps = std::vector<std::uint64_t>;

[[noreturn]] void refuse_value(const std::string& owner, const OptionField& field,
                               const std::string& value, const std::string& expected) {
  throw Error(ErrorCode::invalid_argument,
              owner + ": " + field.name + "=" + value + ": expected " + expected);
}

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

bool read_value(std::string_view text, double* value) { return read_number(text, *value); }
bool read_value(std::string_view text, std::uint64_t* value) { return read_number(text, *value); }

bool read_value(std::string_view text, std::optional<double>* value) {
  value->reset();
  return text == "none" || read_number(text, value->emplace());
}

bool read_value(std::string_view text, bool* value) {
  *value = text == "true" || text == "1";
  return *value || text == "false" || text == "0";
}

bool read_value(std::string_view text, const OptionChoice& value) { return value.set(text); }

bool read_value(std::string_view text, Steps* value) {
  value->clear();
  while (true) {
    const std::size_t colon = text.find(':');
    if (!read_number(text.substr(0, colon), value->emplace_back())) return false;
    if (colon == std::string_view::npos) return true;
    text.remove_prefix(colon + 1);
  }
}

template <class Number>
std::string number_text(Number number) {
  char text[32];
  // read_value() gives the same number.
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

std::string write_value(const double* value) { return number_text(*value); }
std::string write_value(const std::uint64_t* value) { return number_text(*value); }
std::string write_value(const bool* value) { return *value ? "true" : "false"; }
std::string write_value(const OptionChoice& value) { return value.name(); }
std::string write_value(const std::optional<double>* value) {
  return *value ? number_text(**value) : "none";
}
std::string write_value(const Steps* value) {
  std::string text;
  for (const std::uint64_t step : *value) text += (text.empty() ? "" : ":") + number_text(step);
  return text;
}

bool holds(const OptionBounds& bounds, const double* value) { return bounds.hold(*value); }
bool holds(const OptionBounds& bounds, const std::uint64_t* value) {
  return bounds.hold(static_cast<double>(*value));
}
bool holds(const OptionBounds& bounds, const std::optional<double>* value) {
  return !*value || bounds.hold(**value);
}
bool holds(const OptionBounds& /*bounds*/, const bool* /*value*/) { return true; }
bool holds(const OptionBounds& /*bounds*/, const OptionChoice& /*value*/) { return true; }
bool holds(const OptionBounds& /*bounds*/, const Steps* value) {
  for (std::size_t i = 0; i < value->size(); ++i) {
    if ((*value)[i] <= (i == 0 ? 0 : (*value)[i - 1])) return false;
  }
  return !value->empty();
}

/// Describes the expected value of an option, for errors.
struct Expected {
  const OptionBounds& bounds;
  std::string operator()(const double* /*kind*/) const { return bounds.text; }
  std::string operator()(const std::uint64_t* /*kind*/) const {
    return &bounds == &bounds::kFinite ? "a whole number" : bounds.text;
  }
  std::string operator()(const std::optional<double>* /*kind*/) const {
    return std::string(bounds.text) + ", or none";
  }
  std::string operator()(const bool* /*kind*/) const { return "true or false"; }
  std::string operator()(const OptionChoice& choice) const {
    std::string text;
    for (const char* name : choice.names())
      text += (text.empty() ? "" : " or ") + std::string(name);
    return text;
  }
  std::string operator()(const Steps* /*kind*/) const {
    return "ascending whole numbers above 0, such as 1000:2000";
  }
};

bool is_in_bounds(const OptionField& field) {
  return std::visit([&](const auto& value) { return holds(*field.bounds, value); }, field.value);
}

std::string expected(const OptionField& field) {
  return std::visit(Expected{*field.bounds}, field.value);
}

}  // namespace

bool OptionChoice::set(std::string_view name) const {
  const auto found = std::ranges::find(names_, name);
  if (found == names_.end()) return false;
  *number_ = static_cast<std::uint8_t>(found - names_.begin());
  return true;
}

void check_field(const std::string& owner, const OptionField& field) {
  if (!is_in_bounds(field)) refuse_value(owner, field, value_text(field), expected(field));
}

void read_field(const std::string& owner, const OptionField& field, const std::string& text) {
  if (std::visit([&](const auto& value) { return read_value(text, value); }, field.value)) return;
  refuse_value(owner, field, text, expected(field));
}

std::string value_text(const OptionField& field) {
  return std::visit([](const auto& value) { return write_value(value); }, field.value);
}

void add(Digest& digest, const OptionField& field) {
  digest.add(std::string_view(field.name)).add(std::string_view(value_text(field)));
}

std::string options_text(const OptionFields& fields) {
  std::string text;
  for (const OptionField& field : fields) {
    text += std::string(",") + field.name + "=";
    text += is_in_bounds(field) ? value_text(field) : "...";
  }
  return text;
}

std::string changes_text(const OptionFields& fields, const OptionFields& defaults) {
  std::string text;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::string value = value_text(fields[i]);
    if (value != value_text(defaults[i])) text += std::string(",") + fields[i].name + "=" + value;
  }
  return text;
}

OptionWords::OptionWords(std::string owner, std::string_view options, std::string_view defaults)
    : owner_(std::move(owner)), words_(split(options)) {
  words_.merge(split(defaults));  // merge() leaves existing options unchanged
}

void OptionWords::throw_invalid_argument(const std::string& why) const {
  throw Error(ErrorCode::invalid_argument, owner_ + ": " + why);
}

/// Splits ",option=value,option=value" into options.
OptionWords::Map OptionWords::split(std::string_view text) const {
  Map words;
  while (!text.empty()) {
    text.remove_prefix(1);
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string word(text.substr(0, comma));
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw_invalid_argument("expected option=value between commas, found '" + word + "'");
    }
    if (!words.emplace(word.substr(0, equals), word.substr(equals + 1)).second) {
      throw_invalid_argument("the option '" + word.substr(0, equals) + "' is given twice");
    }
    text.remove_prefix(comma);
  }
  return words;
}

std::optional<std::string> OptionWords::take(const std::string& option) {
  known_.push_back(option);
  const auto word = words_.extract(option);
  if (word.empty()) return std::nullopt;
  return word.mapped();
}

void OptionWords::read(const OptionFields& fields) {
  for (const OptionField& field : fields) {
    if (const auto value = take(field.name)) read_field(owner_, field, *value);
  }
}

const std::string* OptionWords::left_over() const {
  return words_.empty() ? nullptr : &words_.begin()->first;
}

bool OptionWords::knows(std::string_view option) const {
  return std::ranges::find(known_, option) != known_.end();
}

void OptionWords::require_all_read() const {
  if (const std::string* option = left_over())
    throw_invalid_argument(unknown_name("option", *option, known_));
}

std::string unknown_name(const std::string& what, const std::string& name,
                         const std::vector<std::string>& known) {
  return "unknown " + what + " '" + name + "', did you mean " + nearest_name(name, known) +
         "? There are: " + comma_list(known);
}

std::string comma_list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace tutti
