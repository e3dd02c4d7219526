// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/adaptive.hpp"

#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

template <class Real>
struct AdadeltaFormula {
  Gradient<Real> gradient;
  Real rate;
  Average<Real> average;
  Real epsilon;

  TUTTI_ON_ANY void operator()(Real g, Real& w, Real& a, Real& b) const {
    const Real decayed = gradient.decayed(g, w);
    a = average(a, decayed * decayed);
    const Real step = std::sqrt(b + epsilon) / std::sqrt(a + epsilon) * decayed;
    b = average(b, step * step);
    w -= rate * step;
  }
};

struct AdadeltaRule {
  using Options = AdadeltaOptions;

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    update.each(AdadeltaFormula<Real>{update.gradient(), update.rate(), Average<Real>(options.rho),
                                      static_cast<Real>(options.epsilon)});
  }
};

}  // namespace tutti::optimizer
