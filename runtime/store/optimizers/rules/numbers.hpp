// SPDX-License-Identifier: Apache-2.0
// What formulas are written in: the gradient's preparation, moving averages, rates.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "tutti/optimizer.hpp"

#include "runtime/base/portable_math.hpp"
#include "runtime/store/optimizers/rules/formula.hpp"

namespace tutti::optimizer {

/// What all optimizers do to a gradient first. All arithmetic in Real, without fused multiply-add,
/// so that the bits do not depend on the machine. A NaN gradient stays NaN.
template <class Real>
class Gradient {
 public:
  Gradient(const OptimizerOptions& options, const UpdateStep& step)
      : rescale_(static_cast<Real>(options.rescale_grad)),
        limit_(options.clip_gradient ? static_cast<Real>(*options.clip_gradient)
                                     : std::numeric_limits<Real>::infinity()),
        decay_(static_cast<Real>(step.weight_decay)) {}

  [[nodiscard]] TUTTI_ON_ANY Real rescaled(Real g) const { return rescale_ * g; }
  [[nodiscard]] TUTTI_ON_ANY Real clip(Real value) const {
    const Real below = value > limit_ ? limit_ : value;
    return below < -limit_ ? -limit_ : below;
  }
  /// g'
  [[nodiscard]] TUTTI_ON_ANY Real plain(Real g) const { return clip(rescaled(g)); }
  /// wd*w
  [[nodiscard]] TUTTI_ON_ANY Real decay(Real w) const { return decay_ * w; }
  /// g' + wd*w
  [[nodiscard]] TUTTI_ON_ANY Real decayed(Real g, Real w) const { return plain(g) + decay(w); }

 private:
  Real rescale_;
  Real limit_;
  Real decay_;
};

/// The moving average b*mean + (1-b)*next.
template <class Real>
class Average {
 public:
  explicit Average(double decay)
      : keep_(static_cast<Real>(decay)), take_(static_cast<Real>(1 - decay)) {}
  [[nodiscard]] TUTTI_ON_ANY Real operator()(Real mean, Real next) const {
    return keep_ * mean + take_ * next;
  }

 private:
  Real keep_;
  Real take_;
};

/// What the numbers of a formula follow from: the common half of an Update of any machine, which
/// adds each(formula) and norm(formula).
template <class Element>
class UpdateNumbers {
 public:
  using Real = Element;

  UpdateNumbers(const OptimizerOptions& options, const UpdateStep& step)
      : options_(options), step_(step) {}

  [[nodiscard]] const UpdateStep& step() const { return step_; }
  [[nodiscard]] Gradient<Real> gradient() const { return {options_, step_}; }
  [[nodiscard]] Real rate() const { return static_cast<Real>(step_.learning_rate); }
  /// 1 - decay^t: what a moving average has taken in so far.
  [[nodiscard]] double taken(double decay) const { return 1 - power(decay, step_.count); }

  /// Adam's rate: lr*sqrt(1 - beta2^t)/(1 - beta1^t).
  [[nodiscard]] Real corrected_rate(double beta1, double beta2) const {
    return static_cast<Real>(step_.learning_rate * std::sqrt(taken(beta2)) / taken(beta1));
  }

 private:
  const OptimizerOptions& options_;
  const UpdateStep& step_;
};

/// Adam's two averages, and what keeps a quotient by a root finite.
template <class Real>
struct Moments {
  Average<Real> first;
  Average<Real> second;
  Real epsilon;
};

template <class Real, class Options>
Moments<Real> moments_of(const Options& options) {
  return {Average<Real>(options.beta1), Average<Real>(options.beta2),
          static_cast<Real>(options.epsilon)};
}

/// The weight itself, for norms.
template <class Real>
struct WeightItself {
  TUTTI_ON_ANY Real operator()(NotRead /*g*/, Real w) const { return w; }
};

template <class Real>
struct RescaledGradient {
  Gradient<Real> gradient;
  TUTTI_ON_ANY Real operator()(Real g, NotRead /*w*/) const { return gradient.rescaled(g); }
};

/// Changes nothing, where a formula cannot be computed.
template <class Real>
struct Unchanged {
  TUTTI_ON_ANY void operator()(Real /*g*/, NotRead /*w*/) const {}
};

/// 1 if either norm is 0.
TUTTI_ON_ANY inline double norm_ratio(double numerator, double denominator) {
  return numerator == 0 || denominator == 0 ? 1.0 : numerator / denominator;
}

}  // namespace tutti::optimizer
