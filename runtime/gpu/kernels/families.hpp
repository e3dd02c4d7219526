// SPDX-License-Identifier: Apache-2.0
// The optimizers that there are kernels for, in the three families of tutti/optimizers/. Each is
// compiled by itself (family_*.hpp), since nvcc takes long for them.
#pragma once

#include <span>

#include "runtime/gpu/kernels/plan.hpp"
#include "runtime/store/optimizers/rules/options_of.hpp"

namespace tutti::gpus::kernels {

// Each: false if the optimizer follows none of the family's rules; else notes the updates of these
// steps, unless `plan` is null.
template <class Real, class Machine>
bool plan_descent(const Optimizer& optimizer, std::span<const UpdateStep> steps,
                  Plan<Machine>* plan);
template <class Real, class Machine>
bool plan_adaptive(const Optimizer& optimizer, std::span<const UpdateStep> steps,
                   Plan<Machine>* plan);
template <class Real, class Machine>
bool plan_adam_family(const Optimizer& optimizer, std::span<const UpdateStep> steps,
                      Plan<Machine>* plan);
template <class Real, class Machine>
bool plan_layerwise(const Optimizer& optimizer, std::span<const UpdateStep> steps,
                    Plan<Machine>* plan);

template <class Real, class Machine>
bool plan_any(const Optimizer& optimizer, std::span<const UpdateStep> steps, Plan<Machine>* plan) {
  return plan_descent<Real>(optimizer, steps, plan) ||
         plan_adaptive<Real>(optimizer, steps, plan) ||
         plan_adam_family<Real>(optimizer, steps, plan) ||
         plan_layerwise<Real>(optimizer, steps, plan);
}

/// True if the formulas of a step depend on its key.
bool depends_on_key(const Optimizer& optimizer);

/// Does it for one rule.
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

template <class Real, class Machine, class... Rules>
bool plan_one_of(const Optimizer& optimizer, std::span<const UpdateStep> steps,
                 Plan<Machine>* plan) {
  return (plan_rule<Rules, Real>(optimizer, steps, plan) || ...);
}

}  // namespace tutti::gpus::kernels
