// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/adam_family.hpp"

#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

/// u of the step w -= rate*u, from moments that have been updated.
template <class Real>
struct LambDirection {
  Gradient<Real> gradient;
  Moments<Real> moments;
  Real first_taken;
  Real second_taken;

  TUTTI_ON_ANY Real operator()(Real w, Real m, Real v) const {
    return m / first_taken / (std::sqrt(v / second_taken) + moments.epsilon) + gradient.decay(w);
  }
};

/// Updates the moments; its value is u.
template <class Real>
struct LambMoments {
  LambDirection<Real> direction;

  TUTTI_ON_ANY Real operator()(Real g, Real w, Real& m, Real& v) const {
    const Real plain = direction.gradient.plain(g);
    m = direction.moments.first(m, plain);
    v = direction.moments.second(v, plain * plain);
    return direction(w, m, v);
  }
};

template <class Real>
struct LambDescent {
  LambDirection<Real> direction;
  Real rate;

  TUTTI_ON_ANY void operator()(NotRead /*g*/, Real& w, Real m, Real v) const {
    w -= rate * direction(w, m, v);
  }
};

/// With the norms of w and of u.
template <class Real>
struct LambStep {
  LambDirection<Real> direction;
  double learning_rate;

  TUTTI_ON_ANY LambDescent<Real> operator()(const Norms& norms) const {
    return {direction, static_cast<Real>(learning_rate * norm_ratio(norms[0], norms[1]))};
  }
};

struct LambRule {
  using Options = LambOptions;

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const bool corrected = options.bias_correction;
    const LambDirection<Real> direction{
        update.gradient(), moments_of<Real>(options),
        static_cast<Real>(corrected ? update.taken(options.beta1) : 1),
        static_cast<Real>(corrected ? update.taken(options.beta2) : 1)};
    update.norm(WeightItself<Real>{});
    update.norm(LambMoments<Real>{direction});
    update.each(LambStep<Real>{direction, update.step().learning_rate});
  }
};

}  // namespace tutti::optimizer
