// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/gpu/kernels/families.hpp"
#include "runtime/store/optimizers/rules/adadelta.hpp"
#include "runtime/store/optimizers/rules/adagrad.hpp"
#include "runtime/store/optimizers/rules/ftrl.hpp"
#include "runtime/store/optimizers/rules/rmsprop.hpp"

namespace tutti::gpus::kernels {

template <class Real, class Machine>
bool plan_adaptive(const Optimizer& optimizer, std::span<const UpdateStep> steps,
                   Plan<Machine>* plan) {
  return plan_one_of<Real, Machine, optimizer::AdagradRule, optimizer::AdadeltaRule,
                     optimizer::RmspropRule, optimizer::FtrlRule>(optimizer, steps, plan);
}

}  // namespace tutti::gpus::kernels
