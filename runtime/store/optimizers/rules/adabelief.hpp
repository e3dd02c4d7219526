// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/adam_family.hpp"

#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

template <class Real>
struct AdabeliefFormula {
  Gradient<Real> gradient;
  Real rate;
  Moments<Real> moments;

  TUTTI_ON_ANY void operator()(Real g, Real& w, Real& m, Real& s) const {
    const Real clipped = gradient.clip(gradient.rescaled(g) + gradient.decay(w));
    m = moments.first(m, clipped);
    const Real surprise = clipped - m;
    s = moments.second(s, surprise * surprise) + moments.epsilon;
    w -= rate * m / (std::sqrt(s) + moments.epsilon);
  }
};

struct AdabeliefRule {
  using Options = AdabeliefOptions;

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    update.each(AdabeliefFormula<Real>{update.gradient(),
                                       update.corrected_rate(options.beta1, options.beta2),
                                       moments_of<Real>(options)});
  }
};

}  // namespace tutti::optimizer
