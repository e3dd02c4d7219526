// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/adam_family.hpp"

#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

template <class Real>
struct AdamFormula {
  Gradient<Real> gradient;
  Real rate;
  Moments<Real> moments;

  TUTTI_ON_ANY void operator()(Real g, Real& w, Real& m, Real& v) const {
    const Real decayed = gradient.decayed(g, w);
    m = moments.first(m, decayed);
    v = moments.second(v, decayed * decayed);
    w -= rate * m / (std::sqrt(v) + moments.epsilon);
  }
};

struct AdamRule {
  using Options = AdamOptions;

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    update.each(AdamFormula<Real>{update.gradient(),
                                  update.corrected_rate(options.beta1, options.beta2),
                                  moments_of<Real>(options)});
  }
};

}  // namespace tutti::optimizer
