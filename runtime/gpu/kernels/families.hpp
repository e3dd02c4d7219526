// SPDX-License-Identifier: Apache-2.0
// Declares the kernels of all optimizers for other files; family.hpp defines them.
#pragma once

#include <span>

#include "runtime/gpu/kernels/plan.hpp"
#include "runtime/optimizers/families.hpp"

namespace tutti::gpus::kernels {

/// Returns false if the optimizer follows none of the family's rules. Else adds the updates of
/// these steps to `plan`, unless that is null.
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
