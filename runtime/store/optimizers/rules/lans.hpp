// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/adam_family.hpp"

#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

/// The two directions that a step goes along, from moments that have been updated.
template <class Real>
struct LansDirections {
  Gradient<Real> gradient;
  Moments<Real> moments;
  Real first_taken;
  Real second_taken;
  Real divisor;  ///< the norm of the gradient, from norms()

  TUTTI_ON_ANY LansDirections with(const Norms& norms) const {
    LansDirections known = *this;
    known.divisor = static_cast<Real>(norms[0] == 0 ? 1 : norms[0]);
    return known;
  }
  TUTTI_ON_ANY Real normalized(Real g) const {
    return gradient.clip(gradient.rescaled(g) / divisor);
  }
  TUTTI_ON_ANY Real along_mean(Real w, Real m, Real v) const {
    return m / first_taken / (std::sqrt(v / second_taken) + moments.epsilon) + gradient.decay(w);
  }
  TUTTI_ON_ANY Real along_gradient(Real g, Real w, Real v) const {
    return normalized(g) / (std::sqrt(v / second_taken) + moments.epsilon) + gradient.decay(w);
  }
};

/// Updates the moments; its value is the direction along the mean.
template <class Real>
struct LansMean {
  LansDirections<Real> directions;

  TUTTI_ON_ANY Real operator()(Real g, Real w, Real& m, Real& v) const {
    const Real normalized = directions.normalized(g);
    m = directions.moments.first(m, normalized);
    v = directions.moments.second(v, normalized * normalized);
    return directions.along_mean(w, m, v);
  }
};

template <class Real>
struct LansGradient {
  LansDirections<Real> directions;

  TUTTI_ON_ANY Real operator()(Real g, Real w, NotRead /*m*/, Real v) const {
    return directions.along_gradient(g, w, v);
  }
};

template <class Real>
struct LansDescent {
  LansDirections<Real> directions;
  Real mean_rate;
  Real gradient_rate;

  TUTTI_ON_ANY void operator()(Real g, Real& w, Real m, Real v) const {
    w -= mean_rate * directions.along_mean(w, m, v) +
         gradient_rate * directions.along_gradient(g, w, v);
  }
};

/// A formula of the directions, as soon as the norm of the gradient is known.
template <class Formula, class Real>
struct AlongLans {
  LansDirections<Real> directions;

  TUTTI_ON_ANY Formula operator()(const Norms& norms) const { return {directions.with(norms)}; }
};

/// With the norms of g, of w, and of what LansMean and LansGradient give.
template <class Real>
struct LansStep {
  LansDirections<Real> directions;
  double learning_rate;
  double beta1;

  TUTTI_ON_ANY LansDescent<Real> operator()(const Norms& norms) const {
    return {directions.with(norms),
            static_cast<Real>(learning_rate * beta1 * norm_ratio(norms[1], norms[2])),
            static_cast<Real>(learning_rate * (1 - beta1) * norm_ratio(norms[1], norms[3]))};
  }
};

struct LansRule {
  using Options = LansOptions;

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const LansDirections<Real> directions{update.gradient(), moments_of<Real>(options),
                                          static_cast<Real>(update.taken(options.beta1)),
                                          static_cast<Real>(update.taken(options.beta2)), Real{1}};
    update.norm(RescaledGradient<Real>{update.gradient()});
    update.norm(WeightItself<Real>{});
    update.norm(AlongLans<LansMean<Real>, Real>{directions});
    update.norm(AlongLans<LansGradient<Real>, Real>{directions});
    update.each(LansStep<Real>{directions, update.step().learning_rate, options.beta1});
  }
};

}  // namespace tutti::optimizer
