// SPDX-License-Identifier: Apache-2.0
// Learning rates that change with the number of updates.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tutti/export.h"

namespace tutti {

namespace schedule {

/// Multiplies the rate by `factor` after every `step` updates, down to `stop_factor_lr`:
/// first at update step + 1, then at 2 step + 1, ...
struct Factor {
  std::uint64_t step = 0;  ///< at least 1
  double factor = 1.0;     ///< above 0, at most 1
  double stop_factor_lr = 1e-8;
};

/// Multiplies the rate by `factor` after each of the updates `steps`, which ascend.
struct MultiFactor {
  std::vector<std::uint64_t> steps{};
  double factor = 1.0;  ///< above 0, at most 1
};

/// The rate is final + (base - final) * (1 - x)^power, where x goes from 0 at the end of the
/// warm-up to 1 at update max_update and stays there.
struct Poly {
  std::uint64_t max_update = 0;  ///< above the warm-up's steps
  double power = 2.0;            ///< above 0
  double final_lr = 0.0;
};

/// The rate is final + (base - final) * (1 + cos(pi * x)) / 2, with x as for Poly.
/// Source  Loshchilov and Hutter, ICLR 2017, without restarts.
struct Cosine {
  std::uint64_t max_update = 0;  ///< above the warm-up's steps
  double final_lr = 0.0;
};

/// Before update `steps` the rate is begin_lr + (base - begin_lr) * u / steps (linear), or begin_lr
/// (constant).
struct Warmup {
  enum class Mode : std::uint8_t { linear, constant };
  std::uint64_t steps = 0;  ///< none by default
  double begin_lr = 0.0;    ///< at most the base rate, unless `steps` is 0
  Mode mode = Mode::linear;
};

}  // namespace schedule

/// A decay of the rate, and a warm-up:
/// `Schedule{schedule::Cosine{.max_update = 10000}, {.steps = 100}}`.
struct Schedule {
  std::variant<schedule::Factor, schedule::MultiFactor, schedule::Poly, schedule::Cosine> decay;
  schedule::Warmup warmup{};
};

namespace schedule {

/// Makes a schedule from its name and options, which are the fields of the structs above and of
/// Warmup: "cosine,max_update=10000,warmup_steps=100", "multifactor,steps=1000:2000,factor=0.1".
/// Empty for "none". Errors  invalid_argument: an unknown name or option, with the nearest and all
/// known ones; an option given twice; a value that cannot be read. Values out of their range are
/// errors of Optimizer::set_schedule().
TUTTI_API std::optional<Schedule> create(std::string_view text);

}  // namespace schedule

/// The name of the decay: "factor", "multifactor", "poly" or "cosine".
TUTTI_API std::string name_of(const Schedule& schedule);

/// The rate at update u = 1, 2, ..., from the base rate. Depends on its arguments alone, and has
/// the same bits on every machine.
TUTTI_API double learning_rate_at(const Schedule& schedule, double base, std::uint64_t update);

}  // namespace tutti
