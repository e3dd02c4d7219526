// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/adam_family.hpp"

#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

template <class Real>
struct AdamwFormula {
  Gradient<Real> gradient;
  Real rate;
  Moments<Real> moments;

  TUTTI_ON_ANY void operator()(Real g, Real& w, Real& m, Real& v) const {
    const Real plain = gradient.plain(g);
    m = moments.first(m, plain);
    v = moments.second(v, plain * plain);
    w -= rate * (m / (std::sqrt(v) + moments.epsilon) + gradient.decay(w));
  }
};

struct AdamwRule {
  using Options = AdamwOptions;

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    update.each(AdamwFormula<Real>{update.gradient(),
                                   update.corrected_rate(options.beta1, options.beta2),
                                   moments_of<Real>(options)});
  }
};

}  // namespace tutti::optimizer
