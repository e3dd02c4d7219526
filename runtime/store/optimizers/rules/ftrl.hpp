// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/adaptive.hpp"

#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

template <class Real>
struct FtrlFormula {
  Gradient<Real> gradient;
  Real per_rate;
  Real decay;
  Real lambda1;
  Real beta;

  TUTTI_ON_ANY void operator()(Real g, Real& w, Real& z, Real& n) const {
    const Real plain = gradient.plain(g);
    const Real sum = n + plain * plain;
    z += plain - (std::sqrt(sum) - std::sqrt(n)) * per_rate * w;
    n = sum;
    const Real lower = z - lambda1;
    const Real higher = z + lambda1;
    const Real shrunk = lower > 0 ? lower : higher < 0 ? higher : z * 0;
    w = -shrunk / ((beta + std::sqrt(n)) * per_rate + decay);
  }
};

struct FtrlRule {
  using Options = FtrlOptions;

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const UpdateStep& step = update.step();
    if (step.learning_rate == 0) return update.each(Unchanged<Real>{});  // it is divided by
    update.each(FtrlFormula<Real>{update.gradient(), static_cast<Real>(1 / step.learning_rate),
                                  static_cast<Real>(step.weight_decay),
                                  static_cast<Real>(options.lambda1),
                                  static_cast<Real>(options.beta)});
  }
};

}  // namespace tutti::optimizer
