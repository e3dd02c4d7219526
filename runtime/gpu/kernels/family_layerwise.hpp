// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/gpu/kernels/families.hpp"
#include "runtime/store/optimizers/rules/lamb.hpp"
#include "runtime/store/optimizers/rules/lans.hpp"
#include "runtime/store/optimizers/rules/lars.hpp"

namespace tutti::gpus::kernels {

template <class Real, class Machine>
bool plan_layerwise(const Optimizer& optimizer, std::span<const UpdateStep> steps,
                    Plan<Machine>* plan) {
  return plan_one_of<Real, Machine, optimizer::LarsRule, optimizer::LambRule, optimizer::LansRule>(
      optimizer, steps, plan);
}

}  // namespace tutti::gpus::kernels
