// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/gradient_descent.hpp"

#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

/// The gradient as it would be at the present weight, not at the one that it was computed from.
template <class Real>
struct Compensated {
  Gradient<Real> gradient;
  Real lambda;

  TUTTI_ON_ANY Real operator()(Real g, Real w, Real before) const {
    const Real decayed = gradient.decayed(g, w);
    return decayed + lambda * decayed * decayed * (w - before);
  }
};

template <class Real>
struct DcasgdFormula {
  Compensated<Real> compensated;
  Real rate;

  TUTTI_ON_ANY void operator()(Real g, Real& w, Real& before) const {
    const Real step = rate * compensated(g, w, before);
    before = w;
    w -= step;
  }
};

template <class Real>
struct DcasgdWithMomentum {
  Compensated<Real> compensated;
  Real rate;
  Real momentum;

  TUTTI_ON_ANY void operator()(Real g, Real& w, Real& before, Real& m) const {
    m = momentum * m - rate * compensated(g, w, before);
    before = w;
    w += m;
  }
};

struct DcasgdRule {
  using Options = DcasgdOptions;

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const Compensated<Real> compensated{update.gradient(), static_cast<Real>(options.lambda)};
    if (options.momentum == 0) {
      update.each(DcasgdFormula<Real>{compensated, update.rate()});
    } else {
      update.each(DcasgdWithMomentum<Real>{compensated, update.rate(),
                                           static_cast<Real>(options.momentum)});
    }
  }
};

}  // namespace tutti::optimizer
