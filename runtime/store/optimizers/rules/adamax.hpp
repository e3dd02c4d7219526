// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/adam_family.hpp"

#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

template <class Real>
struct AdamaxFormula {
  Gradient<Real> gradient;
  Real rate;
  Average<Real> first;
  Real beta2;
  Real epsilon;

  TUTTI_ON_ANY void operator()(Real g, Real& w, Real& m, Real& u) const {
    const Real decayed = gradient.decayed(g, w);
    m = first(m, decayed);
    const Real faded = beta2 * u;
    const Real size = std::abs(decayed);
    u = faded > size ? faded : size;
    w -= rate * m / (u + epsilon);
  }
};

struct AdamaxRule {
  using Options = AdamaxOptions;

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const auto rate = static_cast<Real>(update.step().learning_rate / update.taken(options.beta1));
    update.each(AdamaxFormula<Real>{update.gradient(), rate, Average<Real>(options.beta1),
                                    static_cast<Real>(options.beta2),
                                    static_cast<Real>(options.epsilon)});
  }
};

}  // namespace tutti::optimizer
