// SPDX-License-Identifier: Apache-2.0
// The fields of an options struct as data: what checks them, digests them, and reads and writes
// them as "name=value".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tutti/compression.hpp"
#include "tutti/optimizer.hpp"

#include "runtime/digest.hpp"

namespace tutti::optimizer {

/// What a number may be.
struct Bounds {
  bool (*hold)(double value);
  const char* text;
};
extern const Bounds kFinite;
extern const Bounds kNotNegative;
extern const Bounds kPositive;
extern const Bounds kBelowOne;  ///< 0 <= value < 1: decays
extern const Bounds kUpToOne;   ///< 0 < value <= 1: factors of a rate
extern const Bounds kAtLeastOne;

struct Field {
  using Value =
      std::variant<double*, std::optional<double>*, bool*, std::uint64_t*,
                   std::vector<std::uint64_t>*, schedule::Warmup::Mode*, compression::Leg*>;
  const char* name;
  Value value;
  const Bounds* bounds = &kFinite;
};
using Fields = std::vector<Field>;

/// Errors  invalid_argument: "OWNER: NAME=VALUE: expected ...".
void check(const std::string& owner, const Field& field);
/// Sets a field. Errors: invalid_argument for a text that is no such value.
void read(const std::string& owner, const Field& field, const std::string& text);
/// The value as read() takes it.
std::string value_to_string(const Field& field);
void add(Digest& digest, const Field& field);

/// What all options structs have; the schedule is not one value, see below.
template <class Options>
Fields common_fields(Options& options) {
  return {{"learning_rate", &options.learning_rate, &kNotNegative},
          {"weight_decay", &options.weight_decay, &kNotNegative},
          {"rescale_grad", &options.rescale_grad},
          {"clip_gradient", &options.clip_gradient, &kPositive},
          {"multi_precision", &options.multi_precision}};
}

Fields decay_fields(Schedule& schedule);
Fields warmup_fields(Schedule& schedule);
/// Both.
Fields fields_of(Schedule& schedule);
/// Errors  invalid_argument: a value out of its range.
void check(const std::string& owner, const Schedule& schedule);
/// One of each kind, with default values.
const std::vector<Schedule>& kinds_of_schedule();

/// ",name=value,..."; "..." for a value that has to be given.
std::string to_string(const Fields& fields);
/// ",name=value" for each field whose value is not that of `defaults`. Both list the same fields.
std::string changes_to_string(const Fields& fields, const Fields& defaults);
/// ",schedule=cosine,max_update=100".
std::string to_string(const Schedule& schedule);

}  // namespace tutti::optimizer
