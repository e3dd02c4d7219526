// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/fields.hpp"

#include <charconv>
#include <cmath>

#include "tutti/error.hpp"

namespace tutti::optimizer {

const Bounds kFinite{[](double value) { return std::isfinite(value); }, "a finite number"};
const Bounds kNotNegative{[](double value) { return std::isfinite(value) && value >= 0; },
                          "a number of at least 0"};
const Bounds kPositive{[](double value) { return std::isfinite(value) && value > 0; },
                       "a number above 0"};
const Bounds kBelowOne{[](double value) { return value >= 0 && value < 1; },
                       "a number from 0 to below 1"};
const Bounds kUpToOne{[](double value) { return value > 0 && value <= 1; },
                      "a number above 0, at most 1"};
const Bounds kAtLeastOne{[](double value) { return value >= 1; }, "a whole number of at least 1"};

namespace {

using Steps = std::vector<std::uint64_t>;
using Mode = schedule::Warmup::Mode;
using compression::Leg;

[[noreturn]] void throw_invalid_argument(const std::string& owner, const Field& field,
                                         const std::string& value, const std::string& expected) {
  throw Error(ErrorCode::invalid_argument,
              owner + ": " + field.name + "=" + value + ": expected " + expected);
}

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

bool read_value(std::string_view text, double& value) { return read_number(text, value); }
bool read_value(std::string_view text, std::uint64_t& value) { return read_number(text, value); }

bool read_value(std::string_view text, std::optional<double>& value) {
  value.reset();
  return text == "none" || read_number(text, value.emplace());
}

bool read_value(std::string_view text, bool& value) {
  value = text == "true" || text == "1";
  return value || text == "false" || text == "0";
}

bool read_value(std::string_view text, Mode& value) {
  value = text == "linear" ? Mode::linear : Mode::constant;
  return text == "linear" || text == "constant";
}

bool read_value(std::string_view text, Leg& value) {
  value = text == "all" ? Leg::all : Leg::between;
  return text == "all" || text == "between";
}

bool read_value(std::string_view text, Steps& value) {
  value.clear();
  while (true) {
    const std::size_t colon = text.find(':');
    if (!read_number(text.substr(0, colon), value.emplace_back())) return false;
    if (colon == std::string_view::npos) return true;
    text.remove_prefix(colon + 1);
  }
}

template <class Number>
std::string number_to_string(Number number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};  // reads back the same
}

std::string to_string(double value) { return number_to_string(value); }
std::string to_string(std::uint64_t value) { return number_to_string(value); }
std::string to_string(bool value) { return value ? "true" : "false"; }
std::string to_string(Mode value) { return value == Mode::linear ? "linear" : "constant"; }
std::string to_string(Leg value) { return value == Leg::all ? "all" : "between"; }
std::string to_string(const std::optional<double>& value) {
  return value ? to_string(*value) : "none";
}
std::string to_string(const Steps& value) {
  std::string text;
  for (const std::uint64_t step : value) text += (text.empty() ? "" : ":") + to_string(step);
  return text;
}

bool holds(const Bounds& bounds, double value) { return bounds.hold(value); }
bool holds(const Bounds& bounds, std::uint64_t value) {
  return bounds.hold(static_cast<double>(value));
}
bool holds(const Bounds& bounds, const std::optional<double>& value) {
  return !value || bounds.hold(*value);
}
bool holds(const Bounds& /*bounds*/, bool /*value*/) { return true; }
bool holds(const Bounds& /*bounds*/, Mode /*value*/) { return true; }
bool holds(const Bounds& /*bounds*/, Leg /*value*/) { return true; }
bool holds(const Bounds& /*bounds*/, const Steps& value) {
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value[i] <= (i == 0 ? 0 : value[i - 1])) return false;
  }
  return !value.empty();
}

/// What a text should be, where it is nothing of the kind.
struct Expected {
  const Bounds& bounds;
  std::string operator()(const double* /*kind*/) const { return bounds.text; }
  std::string operator()(const std::uint64_t* /*kind*/) const {
    return &bounds == &kFinite ? "a whole number" : bounds.text;
  }
  std::string operator()(const std::optional<double>* /*kind*/) const {
    return std::string(bounds.text) + ", or none";
  }
  std::string operator()(const bool* /*kind*/) const { return "true or false"; }
  std::string operator()(const Mode* /*kind*/) const { return "linear or constant"; }
  std::string operator()(const Leg* /*kind*/) const { return "all or between"; }
  std::string operator()(const Steps* /*kind*/) const {
    return "ascending whole numbers above 0, such as 1000:2000";
  }
};

bool is_in_bounds(const Field& field) {
  return std::visit([&](const auto* value) { return holds(*field.bounds, *value); }, field.value);
}

std::string expected(const Field& field) {
  return std::visit(Expected{*field.bounds}, field.value);
}

}  // namespace

void check(const std::string& owner, const Field& field) {
  if (!is_in_bounds(field))
    throw_invalid_argument(owner, field, value_to_string(field), expected(field));
}

void read(const std::string& owner, const Field& field, const std::string& text) {
  if (std::visit([&](auto* value) { return read_value(text, *value); }, field.value)) return;
  throw_invalid_argument(owner, field, text, expected(field));
}

std::string value_to_string(const Field& field) {
  return std::visit([](const auto* value) { return to_string(*value); }, field.value);
}

void add(Digest& digest, const Field& field) {
  digest.add(std::string_view(field.name)).add(std::string_view(value_to_string(field)));
}

std::string to_string(const Fields& fields) {
  std::string text;
  for (const Field& field : fields) {
    text += std::string(",") + field.name + "=";
    text += is_in_bounds(field) ? value_to_string(field) : "...";
  }
  return text;
}

std::string changes_to_string(const Fields& fields, const Fields& defaults) {
  std::string text;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::string value = value_to_string(fields[i]);
    if (value != value_to_string(defaults[i]))
      text += std::string(",") + fields[i].name + "=" + value;
  }
  return text;
}

}  // namespace tutti::optimizer
