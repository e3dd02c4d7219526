// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/gpu/kernels/families.hpp"
#include "runtime/store/optimizers/rules/adabelief.hpp"
#include "runtime/store/optimizers/rules/adam.hpp"
#include "runtime/store/optimizers/rules/adamax.hpp"
#include "runtime/store/optimizers/rules/adamw.hpp"
#include "runtime/store/optimizers/rules/ftml.hpp"
#include "runtime/store/optimizers/rules/nadam.hpp"

namespace tutti::gpus::kernels {

template <class Real, class Machine>
bool plan_adam_family(const Optimizer& optimizer, std::span<const UpdateStep> steps,
                      Plan<Machine>* plan) {
  return plan_one_of<Real, Machine, optimizer::AdamRule, optimizer::AdamwRule,
                     optimizer::AdabeliefRule, optimizer::AdamaxRule, optimizer::NadamRule,
                     optimizer::FtmlRule>(optimizer, steps, plan);
}

}  // namespace tutti::gpus::kernels
