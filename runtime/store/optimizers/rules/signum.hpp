// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/gradient_descent.hpp"

#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

/// 0 and NaN are their own sign.
template <class Real>
TUTTI_ON_ANY Real sign(Real value) {
  return value > 0 ? Real{1} : value < 0 ? Real{-1} : value;
}

template <class Real>
struct SignOfGradient {
  Gradient<Real> gradient;
  Real rate;
  Real kept;

  TUTTI_ON_ANY void operator()(Real g, Real& w) const {
    w = kept * w + rate * sign(-gradient.decayed(g, w));
  }
};

template <class Real>
struct SignOfMomentum {
  Gradient<Real> gradient;
  Real rate;
  Real kept;
  Average<Real> average;

  TUTTI_ON_ANY void operator()(Real g, Real& w, Real& m) const {
    m = average(m, -gradient.decayed(g, w));
    w = kept * w + rate * sign(m);
  }
};

struct SignumRule {
  using Options = SignumOptions;

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const auto kept = static_cast<Real>(1 - update.step().learning_rate * options.wd_lh);
    if (options.momentum == 0) {
      update.each(SignOfGradient<Real>{update.gradient(), update.rate(), kept});
    } else {
      update.each(SignOfMomentum<Real>{update.gradient(), update.rate(), kept,
                                       Average<Real>(options.momentum)});
    }
  }
};

}  // namespace tutti::optimizer
