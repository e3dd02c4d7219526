// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/adaptive.hpp"

#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

template <class Real>
struct RmspropFormula {
  Gradient<Real> gradient;
  Real rate;
  Average<Real> average;
  Real epsilon;

  TUTTI_ON_ANY void operator()(Real g, Real& w, Real& v) const {
    const Real decayed = gradient.decayed(g, w);
    v = average(v, decayed * decayed);
    w -= rate * decayed / (std::sqrt(v) + epsilon);
  }
};

template <class Real>
struct CenteredRmsprop {
  Gradient<Real> gradient;
  Real rate;
  Average<Real> average;
  Real epsilon;
  Real momentum;

  TUTTI_ON_ANY void operator()(Real g, Real& w, Real& v, Real& a, Real& d) const {
    const Real decayed = gradient.decayed(g, w);
    v = average(v, decayed * decayed);
    a = average(a, decayed);
    // Of equal gradients v - a^2 is 0, or rounds to less than -epsilon.
    const Real variance = v - a * a;
    const Real spread = (variance > 0 ? variance : variance * 0) + epsilon;
    d = momentum * d - rate * decayed / std::sqrt(spread);
    w += d;
  }
};

struct RmspropRule {
  using Options = RmspropOptions;

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const Average<Real> average(options.rho);
    const auto epsilon = static_cast<Real>(options.epsilon);
    if (options.centered) {
      update.each(CenteredRmsprop<Real>{update.gradient(), update.rate(), average, epsilon,
                                        static_cast<Real>(options.momentum)});
    } else {
      update.each(RmspropFormula<Real>{update.gradient(), update.rate(), average, epsilon});
    }
  }
};

}  // namespace tutti::optimizer
