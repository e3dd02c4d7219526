// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/adam_family.hpp"

#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

template <class Real>
struct FtmlFormula {
  Gradient<Real> gradient;
  Moments<Real> moments;
  Real beta1;
  Real scale;
  Real second_taken;

  TUTTI_ON_ANY void operator()(Real g, Real& w, Real& d, Real& v, Real& z) const {
    const Real decayed = gradient.decayed(g, w);
    v = moments.second(v, decayed * decayed);
    const Real now = scale * (std::sqrt(v / second_taken) + moments.epsilon);
    z = moments.first(z, decayed) - (now - beta1 * d) * w;
    d = now;
    w = -z / d;
  }
};

struct FtmlRule {
  using Options = FtmlOptions;

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const double learning_rate = update.step().learning_rate;
    if (learning_rate == 0) return update.each(Unchanged<Real>{});  // it is divided by
    update.each(FtmlFormula<Real>{update.gradient(), moments_of<Real>(options),
                                  static_cast<Real>(options.beta1),
                                  static_cast<Real>(update.taken(options.beta1) / learning_rate),
                                  static_cast<Real>(update.taken(options.beta2))});
  }
};

}  // namespace tutti::optimizer
