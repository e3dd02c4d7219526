// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/gpu/kernels/families.hpp"
#include "runtime/store/optimizers/rules/dcasgd.hpp"
#include "runtime/store/optimizers/rules/nag.hpp"
#include "runtime/store/optimizers/rules/sgd.hpp"
#include "runtime/store/optimizers/rules/sgld.hpp"
#include "runtime/store/optimizers/rules/signum.hpp"

namespace tutti::gpus::kernels {

template <class Real, class Machine>
bool plan_descent(const Optimizer& optimizer, std::span<const UpdateStep> steps,
                  Plan<Machine>* plan) {
  return plan_one_of<Real, Machine, optimizer::SgdRule, optimizer::NagRule, optimizer::SignumRule,
                     optimizer::DcasgdRule, optimizer::SgldRule>(optimizer, steps, plan);
}

}  // namespace tutti::gpus::kernels
