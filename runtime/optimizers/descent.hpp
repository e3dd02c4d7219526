// SPDX-License-Identifier: Apache-2.0
// Gradient descent with and without momentum, and optimizers that are built on its step.
// The symbols of the formulas: include/tutti/optimizers.hpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "tutti/optimizers/gradient_descent.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/optimizers/rule.hpp"

namespace tutti::optimizer {

// --- sgd -------------------------------------------------------------------------------------
// m = momentum*m - lr*gd; w += m. With momentum 0: w -= lr*gd, without state.

template <class Real>
struct Descent {
  Gradient<Real> gradient;
  Real rate;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w) const { w -= rate * gradient.decayed(g, w); }
};

/// The step m = momentum*m - rate*gd; w += m.
template <class Real>
struct DescentWithMomentum {
  Gradient<Real> gradient;
  Real rate;
  Real momentum;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& m) const {
    m = momentum * m - rate * gradient.decayed(g, w);
    w += m;
  }
};

struct Sgd : Elementwise<SgdOptions> {
  static constexpr bool kUpdatesRows = true;
  static OptionFields fields(Options& options) {
    return {{"momentum", &options.momentum, &bounds::kBelowOne}};
  }
  static int num_states(const Options& options) { return options.momentum == 0 ? 0 : 1; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    if (options.momentum == 0) {
      update.each(Descent<Real>{update.gradient(), update.rate()});
    } else {
      update.each(DescentWithMomentum<Real>{update.gradient(), update.rate(),
                                            static_cast<Real>(options.momentum)});
    }
  }
};

// --- nag -------------------------------------------------------------------------------------
// m = momentum*m - lr*gd; w += momentum*m - lr*gd.
// Source: Sutskever et al., ICML 2013.

template <class Real>
struct NagFormula {
  Gradient<Real> gradient;
  Real rate;
  Real momentum;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& m) const {
    const Real step = rate * gradient.decayed(g, w);
    m = momentum * m - step;
    w += momentum * m - step;
  }
};

struct Nag : Elementwise<NagOptions> {
  static OptionFields fields(Options& options) {
    return {{"momentum", &options.momentum, &bounds::kBelowOne}};
  }
  static int num_states(const Options& /*options*/) { return 1; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    update.each(
        NagFormula<Real>{update.gradient(), update.rate(), static_cast<Real>(options.momentum)});
  }
};

// --- signum ----------------------------------------------------------------------------------
// m = momentum*m - (1-momentum)*gd; w = (1 - lr*wd_lh)*w + lr*sign(m).
// Source: Bernstein et al., ICML 2018; wd_lh: Loshchilov and Hutter, ICLR 2019.

/// The sign of a value. 0 and NaN are their own sign.
template <class Real>
TUTTI_HOST_DEVICE Real sign(Real value) {
  return value > 0 ? Real{1} : value < 0 ? Real{-1} : value;
}

template <class Real>
struct SignOfGradient {
  Gradient<Real> gradient;
  Real rate;
  Real kept;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w) const {
    w = kept * w + rate * sign(-gradient.decayed(g, w));
  }
};

template <class Real>
struct SignOfMomentum {
  Gradient<Real> gradient;
  Real rate;
  Real kept;
  Average<Real> average;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& m) const {
    m = average(m, -gradient.decayed(g, w));
    w = kept * w + rate * sign(m);
  }
};

struct Signum : Elementwise<SignumOptions> {
  static OptionFields fields(Options& options) {
    return {{"momentum", &options.momentum, &bounds::kBelowOne},
            {"wd_lh", &options.wd_lh, &bounds::kNotNegative}};
  }
  static int num_states(const Options& options) { return options.momentum == 0 ? 0 : 1; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const auto kept = static_cast<Real>(1 - update.step().learning_rate * options.wd_lh);
    if (options.momentum == 0) {
      update.each(SignOfGradient<Real>{update.gradient(), update.rate(), kept});
    } else {
      update.each(SignOfMomentum<Real>{update.gradient(), update.rate(), kept,
                                       Average<Real>(options.momentum)});
    }
  }
};

// --- dcasgd ----------------------------------------------------------------------------------
// d = gd + lambda*gd^2*(w - before); m = momentum*m - lr*d; before = w; w += m. The state `before`
// starts as the weight.
// Source: Zheng et al., ICML 2017.

/// The gradient as it would be at the present weight, instead of the weight that it was computed
/// from.
template <class Real>
struct Compensated {
  Gradient<Real> gradient;
  Real lambda;

  TUTTI_HOST_DEVICE Real operator()(Real g, Real w, Real before) const {
    const Real decayed = gradient.decayed(g, w);
    return decayed + lambda * decayed * decayed * (w - before);
  }
};

template <class Real>
struct DcasgdFormula {
  Compensated<Real> compensated;
  Real rate;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& before) const {
    const Real step = rate * compensated(g, w, before);
    before = w;
    w -= step;
  }
};

template <class Real>
struct DcasgdWithMomentum {
  Compensated<Real> compensated;
  Real rate;
  Real momentum;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& before, Real& m) const {
    m = momentum * m - rate * compensated(g, w, before);
    before = w;
    w += m;
  }
};

struct Dcasgd : Elementwise<DcasgdOptions> {
  static constexpr int kWeightState = 0;
  static OptionFields fields(Options& options) {
    return {{"momentum", &options.momentum, &bounds::kBelowOne},
            {"lambda", &options.lambda, &bounds::kNotNegative}};
  }
  static int num_states(const Options& options) { return options.momentum == 0 ? 1 : 2; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const Compensated<Real> compensated{update.gradient(), static_cast<Real>(options.lambda)};
    if (options.momentum == 0) {
      update.each(DcasgdFormula<Real>{compensated, update.rate()});
    } else {
      update.each(DcasgdWithMomentum<Real>{compensated, update.rate(),
                                           static_cast<Real>(options.momentum)});
    }
  }
};

// --- sgld ------------------------------------------------------------------------------------
// w -= lr/2*gd; w += noise, normal with standard deviation sqrt(lr).
// Source: Welling and Teh, ICML 2011.

/// Number `index` of the SplitMix64 generator with this seed (Steele, Lea, Flood, OOPSLA 2014): any
/// element can be drawn by itself, so the noise does not depend on how a tensor is cut.
[[gnu::always_inline]] TUTTI_HOST_DEVICE inline std::uint64_t splitmix64(std::uint64_t seed,
                                                                         std::uint64_t index) {
  std::uint64_t mixed = seed + (index + 1) * 0x9E3779B97F4A7C15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
  return mixed ^ (mixed >> 31);
}

/// A normal number by the method of Box and Muller, from the two halves of one random number: at
/// most 6.7 from 0.
[[gnu::always_inline]] TUTTI_HOST_DEVICE inline double normal(std::uint64_t seed,
                                                              std::uint64_t index) {
  const std::uint64_t bits = splitmix64(seed, index);
  const double length = small_to_double((bits >> 32) + 1) * 0x1p-32;
  const double turn = small_to_double(bits & 0xFFFFFFFFu) * 0x1p-32;
  return std::sqrt(-2.0 * natural_log(length)) * cosine_of_turn(turn);
}

template <class Real>
struct SgldFormula {
  Gradient<Real> gradient;
  Real half_rate;
  double deviation;
  std::uint64_t stream;

  TUTTI_HOST_DEVICE void operator()(Position position, Real g, Real& w) const {
    w -= half_rate * gradient.decayed(g, w);
    w += static_cast<Real>(deviation * normal(stream, position.index));
  }
};

struct Sgld : Elementwise<SgldOptions> {
  static constexpr bool kDependsOnKey = true;
  static OptionFields fields(Options& options) { return {{"seed", &options.seed}}; }
  static int num_states(const Options& /*options*/) { return 0; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const UpdateStep& step = update.step();
    update.each(SgldFormula<Real>{
        update.gradient(), static_cast<Real>(step.learning_rate / 2), std::sqrt(step.learning_rate),
        Digest().add(options.seed).add(step.key).add(step.count).value()});
  }
};

// --- the list --------------------------------------------------------------------------------

/// The optimizers of this family. All else that the library knows of them is made from this list.
// clang-format off
#define TUTTI_DESCENT_FAMILY(rule) \
  rule(sgd, Sgd)                   \
  rule(nag, Nag)                   \
  rule(signum, Signum)             \
  rule(dcasgd, Dcasgd)             \
  rule(sgld, Sgld)
// clang-format on

struct DescentFamily {
  template <class Visit>
  static void each(Visit visit) {
    TUTTI_DESCENT_FAMILY(TUTTI_VISIT_RULE)
  }
};

}  // namespace tutti::optimizer
