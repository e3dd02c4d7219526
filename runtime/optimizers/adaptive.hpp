// SPDX-License-Identifier: Apache-2.0
// Optimizers with a rate per element from the squares of past gradients.
// The symbols of the formulas: include/tutti/optimizers.hpp.
#pragma once

#include <cmath>

#include "tutti/optimizers/adaptive.hpp"

#include "runtime/optimizers/rule.hpp"

namespace tutti::optimizer {

// --- adagrad ---------------------------------------------------------------------------------
// h += gd^2; w -= lr*gd / (sqrt(h) + epsilon).
// Source: Duchi, Hazan, Singer, JMLR 12, 2011.

template <class Real>
struct AdagradFormula {
  Gradient<Real> gradient;
  Real rate;
  Real epsilon;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& h) const {
    const Real decayed = gradient.decayed(g, w);
    h += decayed * decayed;
    w -= rate * decayed / (std::sqrt(h) + epsilon);
  }
};

struct Adagrad : Elementwise<AdagradOptions> {
  static constexpr bool kUpdatesRows = true;
  static OptionFields fields(Options& options) {
    return {{"epsilon", &options.epsilon, &bounds::kPositive}};
  }
  static int num_states(const Options& /*options*/) { return 1; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    update.each(
        AdagradFormula<Real>{update.gradient(), update.rate(), static_cast<Real>(options.epsilon)});
  }
};

// --- adadelta --------------------------------------------------------------------------------
// a = rho*a + (1-rho)*gd^2; d = sqrt(b+epsilon)/sqrt(a+epsilon)*gd; b = rho*b + (1-rho)*d^2;
// w -= lr*d.
// Source: Zeiler, arXiv:1212.5701, 2012.

template <class Real>
struct AdadeltaFormula {
  /// Its square roots take a GPU more registers than other formulas.
  static constexpr bool kIsLong = true;
  Gradient<Real> gradient;
  Real rate;
  Average<Real> average;
  Real epsilon;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& a, Real& b) const {
    const Real decayed = gradient.decayed(g, w);
    a = average(a, decayed * decayed);
    const Real step = std::sqrt(b + epsilon) / std::sqrt(a + epsilon) * decayed;
    b = average(b, step * step);
    w -= rate * step;
  }
};

struct Adadelta : Elementwise<AdadeltaOptions> {
  static OptionFields fields(Options& options) {
    return {{"rho", &options.rho, &bounds::kBelowOne},
            {"epsilon", &options.epsilon, &bounds::kPositive}};
  }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    update.each(AdadeltaFormula<Real>{update.gradient(), update.rate(), Average<Real>(options.rho),
                                      static_cast<Real>(options.epsilon)});
  }
};

// --- rmsprop ---------------------------------------------------------------------------------
// v = rho*v + (1-rho)*gd^2; w -= lr*gd / (sqrt(v) + epsilon). If centered, also
// a = rho*a + (1-rho)*gd; d = momentum*d - lr*gd/sqrt(max(v - a^2, 0) + epsilon); w += d instead.
// Source: Tieleman and Hinton, lecture 6.5, 2012; centered: Graves, arXiv:1308.0850, 2013.

template <class Real>
struct RmspropFormula {
  Gradient<Real> gradient;
  Real rate;
  Average<Real> average;
  Real epsilon;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& v) const {
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

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& v, Real& a, Real& d) const {
    const Real decayed = gradient.decayed(g, w);
    v = average(v, decayed * decayed);
    a = average(a, decayed);
    // If all gradients are equal, v - a^2 is 0, or rounds to less than -epsilon.
    const Real variance = v - a * a;
    const Real spread = (variance > 0 ? variance : variance * 0) + epsilon;
    d = momentum * d - rate * decayed / std::sqrt(spread);
    w += d;
  }
};

struct Rmsprop : Elementwise<RmspropOptions> {
  static OptionFields fields(Options& options) {
    return {{"rho", &options.rho, &bounds::kBelowOne},
            {"momentum", &options.momentum, &bounds::kBelowOne},
            {"epsilon", &options.epsilon, &bounds::kPositive},
            {"centered", &options.centered}};
  }
  static int num_states(const Options& options) { return options.centered ? 3 : 1; }

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

// --- ftrl ------------------------------------------------------------------------------------
// z += g' - (sqrt(n + g'^2) - sqrt(n))/lr*w; n += g'^2;
// w = -sign(z)*max(|z| - lambda1, 0) / ((beta + sqrt(n))/lr + wd). A rate of 0 changes nothing.
// Source: McMahan et al., KDD 2013.

template <class Real>
struct FtrlFormula {
  Gradient<Real> gradient;
  Real per_rate;
  Real decay;
  Real lambda1;
  Real beta;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& z, Real& n) const {
    const Real plain = gradient.plain(g);
    const Real sum = n + plain * plain;
    z += plain - (std::sqrt(sum) - std::sqrt(n)) * per_rate * w;
    n = sum;
    const Real lower = z - lambda1;
    const Real higher = z + lambda1;
    const Real shrunk = lower > 0 ? lower : higher < 0 ? higher : z * 0;
    w = -shrunk / ((beta + std::sqrt(n)) * per_rate + decay);
  }
};

struct Ftrl : Elementwise<FtrlOptions> {
  static OptionFields fields(Options& options) {
    return {{"lambda1", &options.lambda1, &bounds::kNotNegative},
            {"beta", &options.beta, &bounds::kPositive}};
  }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const UpdateStep& step = update.step();
    if (step.learning_rate == 0) return update.each(Unchanged<Real>{});  // it is a divisor
    update.each(FtrlFormula<Real>{update.gradient(), static_cast<Real>(1 / step.learning_rate),
                                  static_cast<Real>(step.weight_decay),
                                  static_cast<Real>(options.lambda1),
                                  static_cast<Real>(options.beta)});
  }
};

// --- the list --------------------------------------------------------------------------------

/// The optimizers of this family. All else that the library knows of them is made from this list.
// clang-format off
#define TUTTI_ADAPTIVE_FAMILY(rule) \
  rule(adagrad, Adagrad)            \
  rule(adadelta, Adadelta)          \
  rule(rmsprop, Rmsprop)            \
  rule(ftrl, Ftrl)
// clang-format on

struct AdaptiveFamily {
  template <class Visit>
  static void each(Visit visit) {
    TUTTI_ADAPTIVE_FAMILY(TUTTI_VISIT_RULE)
  }
};

}  // namespace tutti::optimizer
