// SPDX-License-Identifier: Apache-2.0
// The kernels of one family of optimizers, made from the family's list. A file that instantiates
// plan_family() also includes the family's header.
#pragma once

#include "runtime/gpu/kernels/families.hpp"
#include "runtime/optimizers/rule.hpp"

namespace tutti::gpus::kernels {

/// The part of plan_family() for one rule.
template <class Rule, class Real, class Machine>
bool plan_rule(const Optimizer& optimizer, std::span<const UpdateStep> steps, Plan<Machine>* plan) {
  const auto* options = optimizer::options_for<Rule>(optimizer);
  if (options == nullptr) return false;
  if (plan == nullptr) return true;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    plan->start(i);
    Rule::apply(*options, PlannedUpdate<Machine, Real>(optimizer.options(), steps[i], *plan));
  }
  return true;
}

template <class Family, class Real, class Machine>
bool plan_family(const Optimizer& optimizer, std::span<const UpdateStep> steps,
                 Plan<Machine>* plan) {
  bool found = false;
  Family::each([&]<class Rule>(optimizer::Named<Rule> /*rule*/) {
    found = found || plan_rule<Rule, Real>(optimizer, steps, plan);
  });
  return found;
}

}  // namespace tutti::gpus::kernels
