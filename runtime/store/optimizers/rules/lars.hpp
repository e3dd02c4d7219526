// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/gradient_descent.hpp"

#include "runtime/store/optimizers/rules/descent.hpp"

namespace tutti::optimizer {

/// The layer's own rate: lr*eta*|w| / (|rescale_grad*g| + wd*|w| + epsilon).
struct LarsRate {
  double learning_rate;
  double weight_decay;
  double eta;
  double epsilon;

  TUTTI_ON_ANY double operator()(const Norms& norms) const {
    const double w_norm = norms[0];
    const double g_norm = norms[1];
    return learning_rate * (w_norm > 0 && g_norm > 0
                                ? eta * w_norm / (g_norm + weight_decay * w_norm + epsilon)
                                : 1.0);
  }
};

template <class Real>
struct LarsDescent {
  Gradient<Real> gradient;
  LarsRate rate;

  TUTTI_ON_ANY Descent<Real> operator()(const Norms& norms) const {
    return {gradient, static_cast<Real>(rate(norms))};
  }
};

template <class Real>
struct LarsDescentWithMomentum {
  Gradient<Real> gradient;
  LarsRate rate;
  Real momentum;

  TUTTI_ON_ANY DescentWithMomentum<Real> operator()(const Norms& norms) const {
    return {gradient, static_cast<Real>(rate(norms)), momentum};
  }
};

struct LarsRule {
  using Options = LarsOptions;

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const UpdateStep& step = update.step();
    const LarsRate rate{step.learning_rate, step.weight_decay, options.eta, options.epsilon};
    update.norm(WeightItself<Real>{});
    update.norm(RescaledGradient<Real>{update.gradient()});
    if (options.momentum == 0) {
      update.each(LarsDescent<Real>{update.gradient(), rate});
    } else {
      update.each(LarsDescentWithMomentum<Real>{update.gradient(), rate,
                                                static_cast<Real>(options.momentum)});
    }
  }
};

}  // namespace tutti::optimizer
