// SPDX-License-Identifier: Apache-2.0
// The step of sgd and of lars.
#pragma once

#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

template <class Real>
struct Descent {
  Gradient<Real> gradient;
  Real rate;

  TUTTI_ON_ANY void operator()(Real g, Real& w) const { w -= rate * gradient.decayed(g, w); }
};

/// m = momentum*m - rate*gd; w += m
template <class Real>
struct DescentWithMomentum {
  Gradient<Real> gradient;
  Real rate;
  Real momentum;

  TUTTI_ON_ANY void operator()(Real g, Real& w, Real& m) const {
    m = momentum * m - rate * gradient.decayed(g, w);
    w += m;
  }
};

}  // namespace tutti::optimizer
