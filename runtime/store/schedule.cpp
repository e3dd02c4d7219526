// SPDX-License-Identifier: Apache-2.0
#include "tutti/schedule.hpp"

#include <algorithm>

#include "tutti/error.hpp"

#include "runtime/portable_math.hpp"
#include "runtime/store/optimizers/fields.hpp"

namespace tutti {

namespace {

using namespace schedule;
using optimizer::Fields;

/// What the decays do once the warm-up is over.
struct Rate {
  double base;
  std::uint64_t update;
  std::uint64_t warmup_steps;

  /// `shape` of the way that is done, which is from 0 to 1, tells the part of base - final_lr.
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

struct FieldsOf {
  Fields operator()(Factor& decay) const {
    return {{"step", &decay.step, &optimizer::kAtLeastOne},
            {"factor", &decay.factor, &optimizer::kUpToOne},
            {"stop_factor_lr", &decay.stop_factor_lr, &optimizer::kNotNegative}};
  }
  Fields operator()(MultiFactor& decay) const {
    return {{"steps", &decay.steps}, {"factor", &decay.factor, &optimizer::kUpToOne}};
  }
  Fields operator()(Poly& decay) const {
    return {{"max_update", &decay.max_update, &optimizer::kAtLeastOne},
            {"power", &decay.power, &optimizer::kPositive},
            {"final_lr", &decay.final_lr, &optimizer::kNotNegative}};
  }
  Fields operator()(Cosine& decay) const {
    return {{"max_update", &decay.max_update, &optimizer::kAtLeastOne},
            {"final_lr", &decay.final_lr, &optimizer::kNotNegative}};
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

Fields decay_fields(Schedule& schedule) { return std::visit(FieldsOf(), schedule.decay); }

Fields warmup_fields(Schedule& schedule) {
  Warmup& warmup = schedule.warmup;
  return {{"warmup_steps", &warmup.steps},
          {"warmup_begin_lr", &warmup.begin_lr, &kNotNegative},
          {"warmup_mode", &warmup.mode}};
}

Fields fields_of(Schedule& schedule) {
  Fields fields = decay_fields(schedule);
  for (const Field& field : warmup_fields(schedule)) fields.push_back(field);
  return fields;
}

void check(const std::string& owner, const Schedule& schedule) {
  Schedule copy = schedule;
  const std::string name = owner + ", schedule " + name_of(schedule);
  for (const Field& field : fields_of(copy)) {
    check(name, field);
    const auto* const* number = std::get_if<std::uint64_t*>(&field.value);
    if (std::string_view(field.name) != "max_update" || **number > schedule.warmup.steps) continue;
    throw Error(ErrorCode::invalid_argument, name + ": max_update=" + value_to_string(field) +
                                                 ": expected more than warmup_steps, which is " +
                                                 std::to_string(schedule.warmup.steps));
  }
}

const std::vector<Schedule>& kinds_of_schedule() {
  static const std::vector<Schedule> kKinds = {{Factor()}, {MultiFactor()}, {Poly()}, {Cosine()}};
  return kKinds;
}

std::string to_string(const Schedule& schedule) {
  Schedule copy = schedule;
  for (Schedule kind : kinds_of_schedule()) {
    if (kind.decay.index() != copy.decay.index()) continue;
    return ",schedule=" + name_of(copy) + changes_to_string(fields_of(copy), fields_of(kind));
  }
  return "";
}

}  // namespace optimizer
}  // namespace tutti
