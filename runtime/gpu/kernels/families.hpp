// SPDX-License-Identifier: Apache-2.0
// The kernels of all optimizers, as another file may ask for them; family.hpp defines them.
#pragma once

#include <span>

#include "runtime/gpu/kernels/plan.hpp"
#include "runtime/optimizers/families.hpp"

namespace tutti::gpus::kernels {

/// False if the optimizer follows none of the family's rules; else notes the updates of these
/// steps, unless `plan` is null.
template <class Family, class Real, class Machine>
bool plan_family(const Optimizer& optimizer, std::span<const UpdateStep> steps,
                 Plan<Machine>* plan);

template <class Real, class Machine, class... Family>
bool plan_one_of(optimizer::Families<Family...> /*families*/, const Optimizer& optimizer,
                 std::span<const UpdateStep> steps, Plan<Machine>* plan) {
  return (plan_family<Family, Real>(optimizer, steps, plan) || ...);
}

/// Plans the updates of an optimizer of any family.
template <class Real, class Machine>
bool plan_any(const Optimizer& optimizer, std::span<const UpdateStep> steps, Plan<Machine>* plan) {
  return plan_one_of<Real>(optimizer::AllFamilies(), optimizer, steps, plan);
}

}  // namespace tutti::gpus::kernels
