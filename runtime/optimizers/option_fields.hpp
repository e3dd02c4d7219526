// SPDX-License-Identifier: Apache-2.0
// The fields that the options of all optimizers share, those of the schedules, and those of a loss
// scale.
#pragma once

#include <string>
#include <vector>

#include "tutti/scaling.hpp"
#include "tutti/schedule.hpp"

#include "runtime/base/fields.hpp"

namespace tutti::optimizer {

/// The fields of all options structs, but for the schedule and the loss scale, which are not one
/// value.
template <class Options>
OptionFields common_fields(Options& options) {
  return {{"learning_rate", &options.learning_rate, &bounds::kNotNegative},
          {"weight_decay", &options.weight_decay, &bounds::kNotNegative},
          {"rescale_grad", &options.rescale_grad},
          {"clip_gradient", &options.clip_gradient, &bounds::kPositive},
          {"multi_precision", &options.multi_precision},
          {"clip_global_norm", &options.clip_global_norm, &bounds::kPositive}};
}

/// The fields that loss_scale=dynamic adds.
OptionFields dynamic_fields(LossScale& scale);
/// Errors  invalid_argument: a value out of its range.
void check_loss_scale(const std::string& owner, const LossScale& scale);
/// A loss scale as text, with changed fields: ",loss_scale=1024",
/// ",loss_scale=dynamic,init_scale=1024".
std::string changes_text(const LossScale& scale);

OptionFields decay_fields(Schedule& schedule);
OptionFields warmup_fields(Schedule& schedule);
/// The fields of the decay and of the warm-up.
OptionFields fields_of(Schedule& schedule);
/// Errors  invalid_argument: a value out of its range, or a warm-up that begins above the base
/// rate.
void check_schedule(const std::string& owner, const Schedule& schedule, double base);
/// A schedule of each kind, with default values.
const std::vector<Schedule>& kinds_of_schedule();
/// A schedule as text, with changed fields: ",schedule=cosine,max_update=100".
std::string changes_text(const Schedule& schedule);

}  // namespace tutti::optimizer
