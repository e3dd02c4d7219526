// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/gradient_descent.hpp"

#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

template <class Real>
struct NagFormula {
  Gradient<Real> gradient;
  Real rate;
  Real momentum;

  TUTTI_ON_ANY void operator()(Real g, Real& w, Real& m) const {
    const Real step = rate * gradient.decayed(g, w);
    m = momentum * m - step;
    w += momentum * m - step;
  }
};

struct NagRule {
  using Options = NagOptions;

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    update.each(
        NagFormula<Real>{update.gradient(), update.rate(), static_cast<Real>(options.momentum)});
  }
};

}  // namespace tutti::optimizer
