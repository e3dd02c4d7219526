// SPDX-License-Identifier: Apache-2.0
// Optimizers whose rate follows from the norms of a whole tensor. A ratio of norms is 1 where a
// norm is 0. m^ and v^ are those of adam.hpp.
// The symbols of the formulas: include/tutti/optimizers.hpp.
#pragma once

#include "tutti/optimizers/adam_family.hpp"
#include "tutti/optimizers/gradient_descent.hpp"

#include "runtime/optimizers/descent.hpp"
#include "runtime/optimizers/rule.hpp"

namespace tutti::optimizer {

// --- lars ------------------------------------------------------------------------------------
// Descent with the rate lr*eta*|w| / (|rescale_grad*g| + wd*|w| + epsilon); this g is not clipped.
// Source: You, Gitman, Ginsburg, arXiv:1708.03888, 2017.

/// The rate of one layer, from its norms.
struct LarsRate {
  double learning_rate;
  double weight_decay;
  double eta;
  double epsilon;

  TUTTI_HOST_DEVICE double operator()(const Norms& norms) const {
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

  TUTTI_HOST_DEVICE Descent<Real> operator()(const Norms& norms) const {
    return {gradient, static_cast<Real>(rate(norms))};
  }
};

template <class Real>
struct LarsDescentWithMomentum {
  Gradient<Real> gradient;
  LarsRate rate;
  Real momentum;

  TUTTI_HOST_DEVICE DescentWithMomentum<Real> operator()(const Norms& norms) const {
    return {gradient, static_cast<Real>(rate(norms)), momentum};
  }
};

struct Lars : WholeTensor<LarsOptions> {
  static OptionFields fields(Options& options) {
    return {{"momentum", &options.momentum, &bounds::kBelowOne},
            {"eta", &options.eta, &bounds::kPositive},
            {"epsilon", &options.epsilon, &bounds::kPositive}};
  }
  static int num_states(const Options& options) { return options.momentum == 0 ? 0 : 1; }

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

// --- lamb ------------------------------------------------------------------------------------
// Moments of g'; u = m^ / (sqrt(v^) + epsilon) + wd*w; w -= lr*|w|/|u|*u. Without bias_correction
// m^ = m and v^ = v.
// Source: You et al., ICLR 2020.

/// Computes u of the step w -= rate*u, from moments that have been updated.
template <class Real>
struct LambDirection {
  Gradient<Real> gradient;
  Moments<Real> moments;
  Real first_taken;
  Real second_taken;

  TUTTI_HOST_DEVICE Real operator()(Real w, Real m, Real v) const {
    return m / first_taken / (std::sqrt(v / second_taken) + moments.epsilon) + gradient.decay(w);
  }
};

/// Updates the moments; returns u.
template <class Real>
struct LambMoments {
  LambDirection<Real> direction;

  TUTTI_HOST_DEVICE Real operator()(Real g, Real w, Real& m, Real& v) const {
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

  TUTTI_HOST_DEVICE void operator()(NotRead /*g*/, Real& w, Real m, Real v) const {
    w -= rate * direction(w, m, v);
  }
};

/// Makes the step from the norms of w and of u.
template <class Real>
struct LambStep {
  LambDirection<Real> direction;
  double learning_rate;

  TUTTI_HOST_DEVICE LambDescent<Real> operator()(const Norms& norms) const {
    return {direction, static_cast<Real>(learning_rate * norm_ratio(norms[0], norms[1]))};
  }
};

struct Lamb : WholeTensor<LambOptions> {
  static OptionFields fields(Options& options) {
    OptionFields fields = moment_fields(options);
    fields.push_back({"bias_correction", &options.bias_correction});
    return fields;
  }
  static int num_states(const Options& /*options*/) { return 2; }

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

// --- lans ------------------------------------------------------------------------------------
// g = clip(rescale_grad*g / |rescale_grad*g|), moments of g; D = sqrt(v^) + epsilon;
// a = m^/D + wd*w; b = g/D + wd*w; w -= lr*(b1*|w|/|a|*a + (1-b1)*|w|/|b|*b).
// Source: Zheng et al., arXiv:2006.13484, 2020.

/// The two directions of a step, from moments that have been updated.
template <class Real>
struct LansDirections {
  Gradient<Real> gradient;
  Moments<Real> moments;
  Real first_taken;
  Real second_taken;
  Real divisor;  ///< the norm of the gradient, from norms()

  TUTTI_HOST_DEVICE LansDirections with(const Norms& norms) const {
    LansDirections known = *this;
    known.divisor = static_cast<Real>(norms[0] == 0 ? 1 : norms[0]);
    return known;
  }
  TUTTI_HOST_DEVICE Real normalized(Real g) const {
    return gradient.clip(gradient.rescaled(g) / divisor);
  }
  TUTTI_HOST_DEVICE Real along_mean(Real w, Real m, Real v) const {
    return m / first_taken / (std::sqrt(v / second_taken) + moments.epsilon) + gradient.decay(w);
  }
  TUTTI_HOST_DEVICE Real along_gradient(Real g, Real w, Real v) const {
    return normalized(g) / (std::sqrt(v / second_taken) + moments.epsilon) + gradient.decay(w);
  }
};

/// Updates the moments; returns the direction along the mean.
template <class Real>
struct LansMean {
  LansDirections<Real> directions;

  TUTTI_HOST_DEVICE Real operator()(Real g, Real w, Real& m, Real& v) const {
    const Real normalized = directions.normalized(g);
    m = directions.moments.first(m, normalized);
    v = directions.moments.second(v, normalized * normalized);
    return directions.along_mean(w, m, v);
  }
};

template <class Real>
struct LansGradient {
  LansDirections<Real> directions;

  TUTTI_HOST_DEVICE Real operator()(Real g, Real w, NotRead /*m*/, Real v) const {
    return directions.along_gradient(g, w, v);
  }
};

template <class Real>
struct LansDescent {
  LansDirections<Real> directions;
  Real mean_rate;
  Real gradient_rate;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real m, Real v) const {
    w -= mean_rate * directions.along_mean(w, m, v) +
         gradient_rate * directions.along_gradient(g, w, v);
  }
};

/// A formula of the directions, made once the norm of the gradient is known.
template <class Formula, class Real>
struct AlongLans {
  LansDirections<Real> directions;

  TUTTI_HOST_DEVICE Formula operator()(const Norms& norms) const {
    return {directions.with(norms)};
  }
};

/// Makes the step from the norms of g, of w, and of the values of LansMean and LansGradient.
template <class Real>
struct LansStep {
  LansDirections<Real> directions;
  double learning_rate;
  double beta1;

  TUTTI_HOST_DEVICE LansDescent<Real> operator()(const Norms& norms) const {
    return {directions.with(norms),
            static_cast<Real>(learning_rate * beta1 * norm_ratio(norms[1], norms[2])),
            static_cast<Real>(learning_rate * (1 - beta1) * norm_ratio(norms[1], norms[3]))};
  }
};

struct Lans : WholeTensor<LansOptions> {
  static OptionFields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 2; }

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

// --- the list --------------------------------------------------------------------------------

/// The optimizers of this family. All else that the library knows of them is made from this list.
// clang-format off
#define TUTTI_LAYERWISE_FAMILY(rule) \
  rule(lars, Lars)                   \
  rule(lamb, Lamb)                   \
  rule(lans, Lans)
// clang-format on

struct LayerwiseFamily {
  template <class Visit>
  static void each(Visit visit) {
    TUTTI_LAYERWISE_FAMILY(TUTTI_VISIT_RULE)
  }
};

}  // namespace tutti::optimizer
