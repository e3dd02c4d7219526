// SPDX-License-Identifier: Apache-2.0
#include "tutti/schedule.hpp"

#include <algorithm>

#include "tutti/error.hpp"

#include "runtime/base/portable_math.hpp"
#include "runtime/optimizers/option_fields.hpp"

namespace tutti {

namespace {

using namespace schedule;

/// The decays of a rate once the warm-up is over.
struct Rate {
  double base;
  std::uint64_t update;
  std::uint64_t warmup_steps;

  /// The rate between base and final_lr. `shape` maps the part of the way that is done, from 0 to
  /// 1, to the part of base - final_lr that is left.
  template <class Shape>
  [[nodiscard]] double between(std::uint64_t max_update, double final_lr, Shape shape) const {
    if (update >= max_update) return final_lr;
    const double done =
        static_cast<double>(update - warmup_steps) / static_cast<double>(max_update - warmup_steps);
    return final_lr + (base - final_lr) * shape(done);
  }

  double operator()(const Factor& decay) const {
    const std::uint64_t times = update == 0 ? 0 : (update - 1) / decay.step;
    return times == 0 ? base : std::max(base * power(decay.factor, times), decay.stop_factor_lr);
  }
  double operator()(const MultiFactor& decay) const {
    const auto passed = std::ranges::lower_bound(decay.steps, update) - decay.steps.begin();
    return base * power(decay.factor, static_cast<std::uint64_t>(passed));
  }
  double operator()(const Poly& decay) const {
    return between(decay.max_update, decay.final_lr,
                   [&](double done) { return power(1.0 - done, decay.power); });
  }
  double operator()(const Cosine& decay) const {
    return between(decay.max_update, decay.final_lr,
                   [](double done) { return (1.0 + cosine_of_turn(done / 2)) / 2; });
  }
};

struct Name {
  const char* operator()(const Factor& /*decay*/) const { return "factor"; }
  const char* operator()(const MultiFactor& /*decay*/) const { return "multifactor"; }
  const char* operator()(const Poly& /*decay*/) const { return "poly"; }
  const char* operator()(const Cosine& /*decay*/) const { return "cosine"; }
};

/// The names of Warmup::Mode, in its order.
constexpr const char* kWarmupModes[] = {"linear", "constant"};

struct FieldsOf {
  OptionFields operator()(Factor& decay) const {
    return {{"step", &decay.step, &bounds::kAtLeastOne},
            {"factor", &decay.factor, &bounds::kUpToOne},
            {"stop_factor_lr", &decay.stop_factor_lr, &bounds::kNotNegative}};
  }
  OptionFields operator()(MultiFactor& decay) const {
    return {{"steps", &decay.steps}, {"factor", &decay.factor, &bounds::kUpToOne}};
  }
  OptionFields operator()(Poly& decay) const {
    return {{"max_update", &decay.max_update, &bounds::kAtLeastOne},
            {"power", &decay.power, &bounds::kPositive},
            {"final_lr", &decay.final_lr, &bounds::kNotNegative}};
  }
  OptionFields operator()(Cosine& decay) const {
    return {{"max_update", &decay.max_update, &bounds::kAtLeastOne},
            {"final_lr", &decay.final_lr, &bounds::kNotNegative}};
  }
};

}  // namespace

std::string name_of(const Schedule& schedule) { return std::visit(Name(), schedule.decay); }

double learning_rate_at(const Schedule& schedule, double base, std::uint64_t update) {
  const Warmup& warmup = schedule.warmup;
  if (update >= warmup.steps) return std::visit(Rate{base, update, warmup.steps}, schedule.decay);
  if (warmup.mode == Warmup::Mode::constant) return warmup.begin_lr;
  const double done = static_cast<double>(update) / static_cast<double>(warmup.steps);
  return warmup.begin_lr + (base - warmup.begin_lr) * done;
}

namespace optimizer {

OptionFields decay_fields(Schedule& schedule) { return std::visit(FieldsOf(), schedule.decay); }

OptionFields warmup_fields(Schedule& schedule) {
  Warmup& warmup = schedule.warmup;
  return {{"warmup_steps", &warmup.steps},
          {"warmup_begin_lr", &warmup.begin_lr, &bounds::kNotNegative},
          {"warmup_mode", OptionChoice(&warmup.mode, kWarmupModes)}};
}

OptionFields fields_of(Schedule& schedule) {
  OptionFields fields = decay_fields(schedule);
  for (const OptionField& field : warmup_fields(schedule)) fields.push_back(field);
  return fields;
}

void check_schedule(const std::string& owner, const Schedule& schedule, double base) {
  Schedule copy = schedule;
  const Warmup& warmup = schedule.warmup;
  const std::string name = owner + ", schedule " + name_of(schedule);
  const auto throw_invalid_argument = [&](const OptionField& field, const std::string& expected) {
    throw Error(ErrorCode::invalid_argument,
                name + ": " + field.name + "=" + value_text(field) + ": expected " + expected);
  };
  for (const OptionField& field : fields_of(copy)) {
    check_field(name, field);
    const auto* const* number = std::get_if<std::uint64_t*>(&field.value);
    if (std::string_view(field.name) == "max_update" && **number <= warmup.steps) {
      throw_invalid_argument(field,
                             "more than warmup_steps, which is " + std::to_string(warmup.steps));
    }
    if (std::string_view(field.name) == "warmup_begin_lr" && warmup.steps > 0 &&
        warmup.begin_lr > base) {
      throw_invalid_argument(
          field, "at most learning_rate, which is " + value_text({"learning_rate", &base}));
    }
  }
}

const std::vector<Schedule>& kinds_of_schedule() {
  static const std::vector<Schedule> kKinds = {{Factor()}, {MultiFactor()}, {Poly()}, {Cosine()}};
  return kKinds;
}

std::string changes_text(const Schedule& schedule) {
  Schedule copy = schedule;
  for (Schedule kind : kinds_of_schedule()) {
    if (kind.decay.index() != copy.decay.index()) continue;
    return ",schedule=" + name_of(copy) + changes_text(fields_of(copy), fields_of(kind));
  }
  return "";
}

}  // namespace optimizer
}  // namespace tutti
