// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/adaptive.hpp"

#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

template <class Real>
struct AdagradFormula {
  Gradient<Real> gradient;
  Real rate;
  Real epsilon;

  TUTTI_ON_ANY void operator()(Real g, Real& w, Real& h) const {
    const Real decayed = gradient.decayed(g, w);
    h += decayed * decayed;
    w -= rate * decayed / (std::sqrt(h) + epsilon);
  }
};

struct AdagradRule {
  using Options = AdagradOptions;

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    update.each(
        AdagradFormula<Real>{update.gradient(), update.rate(), static_cast<Real>(options.epsilon)});
  }
};

}  // namespace tutti::optimizer
