// SPDX-License-Identifier: Apache-2.0
#include "tutti/scaling.hpp"

#include "runtime/optimizers/option_fields.hpp"

namespace tutti::optimizer {

OptionFields dynamic_fields(LossScale& scale) {
  return {{"init_scale", &scale.init_scale, &bounds::kNormal},
          {"growth_factor", &scale.growth_factor, &bounds::kNotBelowOne},
          {"backoff_factor", &scale.backoff_factor, &bounds::kUpToOne},
          {"growth_interval", &scale.growth_interval, &bounds::kAtLeastOne}};
}

void check_loss_scale(const std::string& owner, const LossScale& scale) {
  LossScale copy = scale;
  for (const OptionField& field : dynamic_fields(copy)) {
    check_field(owner + ", loss_scale", field);
    if (!scale.is_dynamic) return;  // a constant scale has only the first field
  }
}

std::string changes_text(const LossScale& scale) {
  LossScale copy = scale;
  LossScale defaults;
  if (scale.is_dynamic) {
    return ",loss_scale=dynamic" + changes_text(dynamic_fields(copy), dynamic_fields(defaults));
  }
  return ",loss_scale=" + value_text({"loss_scale", &copy.init_scale});
}

}  // namespace tutti::optimizer
