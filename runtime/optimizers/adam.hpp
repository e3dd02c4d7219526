// SPDX-License-Identifier: Apache-2.0
// The optimizers built on Adam's two moments m = b1*m + (1-b1)*g and v = b2*v + (1-b2)*g^2.
// Below, m^ = m/(1 - b1^t), v^ = v/(1 - b2^t), and l = lr*sqrt(1 - b2^t)/(1 - b1^t).
// The symbols of the formulas: include/tutti/optimizers.hpp.
#pragma once

#include <cmath>

#include "tutti/optimizers/adam_family.hpp"

#include "runtime/optimizers/rule.hpp"

namespace tutti::optimizer {

// --- adam ------------------------------------------------------------------------------------
// Moments of gd; w -= l*m / (sqrt(v) + epsilon).
// Source: Kingma and Ba, ICLR 2015.

template <class Real>
struct AdamFormula {
  Gradient<Real> gradient;
  Real rate;
  Moments<Real> moments;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& m, Real& v) const {
    const Real decayed = gradient.decayed(g, w);
    m = moments.first(m, decayed);
    v = moments.second(v, decayed * decayed);
    w -= rate * m / (std::sqrt(v) + moments.epsilon);
  }
};

struct Adam : Elementwise<AdamOptions> {
  static constexpr bool kUpdatesRows = true;
  static OptionFields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    update.each(AdamFormula<Real>{update.gradient(),
                                  update.corrected_rate(options.beta1, options.beta2),
                                  moments_of<Real>(options)});
  }
};

// --- adamw -----------------------------------------------------------------------------------
// Moments of g'; w -= l*(m / (sqrt(v) + epsilon) + wd*w).
// Source: Loshchilov and Hutter, ICLR 2019.

template <class Real>
struct AdamwFormula {
  Gradient<Real> gradient;
  Real rate;
  Moments<Real> moments;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& m, Real& v) const {
    const Real plain = gradient.plain(g);
    m = moments.first(m, plain);
    v = moments.second(v, plain * plain);
    w -= rate * (m / (std::sqrt(v) + moments.epsilon) + gradient.decay(w));
  }
};

struct Adamw : Elementwise<AdamwOptions> {
  static OptionFields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    update.each(AdamwFormula<Real>{update.gradient(),
                                   update.corrected_rate(options.beta1, options.beta2),
                                   moments_of<Real>(options)});
  }
};

// --- adabelief -------------------------------------------------------------------------------
// g = clip(rescale_grad*g + wd*w); m of g; s = b2*s + (1-b2)*(g - m)^2 + epsilon;
// w -= l*m / (sqrt(s) + epsilon).
// Source: Zhuang et al., NeurIPS 2020.

template <class Real>
struct AdabeliefFormula {
  Gradient<Real> gradient;
  Real rate;
  Moments<Real> moments;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& m, Real& s) const {
    const Real clipped = gradient.clip(gradient.rescaled(g) + gradient.decay(w));
    m = moments.first(m, clipped);
    const Real surprise = clipped - m;
    s = moments.second(s, surprise * surprise) + moments.epsilon;
    w -= rate * m / (std::sqrt(s) + moments.epsilon);
  }
};

struct Adabelief : Elementwise<AdabeliefOptions> {
  static OptionFields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    update.each(AdabeliefFormula<Real>{update.gradient(),
                                       update.corrected_rate(options.beta1, options.beta2),
                                       moments_of<Real>(options)});
  }
};

// --- adamax ----------------------------------------------------------------------------------
// m of gd; u = max(b2*u, |gd|); w -= lr/(1 - b1^t)*m / (u + epsilon).
// Source: Kingma and Ba, ICLR 2015, section 7.1.

template <class Real>
struct AdamaxFormula {
  Gradient<Real> gradient;
  Real rate;
  Average<Real> first;
  Real beta2;
  Real epsilon;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& m, Real& u) const {
    const Real decayed = gradient.decayed(g, w);
    m = first(m, decayed);
    const Real faded = beta2 * u;
    const Real size = std::abs(decayed);
    u = faded > size ? faded : size;
    w -= rate * m / (u + epsilon);
  }
};

struct Adamax : Elementwise<AdamaxOptions> {
  static OptionFields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const auto rate = static_cast<Real>(update.step().learning_rate / update.taken(options.beta1));
    update.each(AdamaxFormula<Real>{update.gradient(), rate, Average<Real>(options.beta1),
                                    static_cast<Real>(options.beta2),
                                    static_cast<Real>(options.epsilon)});
  }
};

// --- nadam -----------------------------------------------------------------------------------
// With mu(t) = b1*(1 - 0.96^(t*schedule_decay)/2) and P = mu(1)*...*mu(t), moments of gd:
// w -= lr*((1 - mu(t))*gd/(1 - P) + mu(t+1)*m/(1 - P*mu(t+1))) / (sqrt(v^) + epsilon).
// Source: Dozat, ICLR workshop 2016.

/// The factors mu(t), mu(t+1) and P = mu(1)*...*mu(t) of nadam. P is not kept from update to
/// update: it is computed anew from t, up to where another factor no longer changes 1 - P (at most
/// 40 / (1 - beta1)).
struct Momenta {
  Momenta(const NadamOptions& options, std::uint64_t count) {
    const double fading = power(0.96, options.schedule_decay);
    const auto momentum = [&](double faded) { return options.beta1 * (1 - 0.5 * faded); };
    double faded = fading;  // fading^t
    for (std::uint64_t t = 1; t <= count && 1 - product != 1; ++t, faded *= fading) {
      product *= momentum(faded);
    }
    now = momentum(power(fading, count));
    next = momentum(power(fading, count + 1));
  }
  double now;
  double next;
  double product = 1;
};

template <class Real>
struct NadamFormula {
  Gradient<Real> gradient;
  Real rate;
  Moments<Real> moments;
  Real of_gradient;
  Real of_mean;
  Real second_taken;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& m, Real& v) const {
    const Real decayed = gradient.decayed(g, w);
    m = moments.first(m, decayed);
    v = moments.second(v, decayed * decayed);
    w -= rate * (of_gradient * decayed + of_mean * m) /
         (std::sqrt(v / second_taken) + moments.epsilon);
  }
};

struct Nadam : Elementwise<NadamOptions> {
  static OptionFields fields(Options& options) {
    OptionFields fields = moment_fields(options);
    fields.push_back({"schedule_decay", &options.schedule_decay, &bounds::kNotNegative});
    return fields;
  }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const Momenta momenta(options, update.step().count);
    update.each(
        NadamFormula<Real>{update.gradient(), update.rate(), moments_of<Real>(options),
                           static_cast<Real>((1 - momenta.now) / (1 - momenta.product)),
                           static_cast<Real>(momenta.next / (1 - momenta.product * momenta.next)),
                           static_cast<Real>(update.taken(options.beta2))});
  }
};

// --- ftml ------------------------------------------------------------------------------------
// v of gd; e = (1 - b1^t)/lr*(sqrt(v^) + epsilon); z = b1*z + (1-b1)*gd - (e - b1*d)*w; d = e;
// w = -z/d. A rate of 0 changes nothing.
// Source: Zheng and Kwok, ICML 2017.

template <class Real>
struct FtmlFormula {
  Gradient<Real> gradient;
  Moments<Real> moments;
  Real beta1;
  Real scale;
  Real second_taken;

  TUTTI_HOST_DEVICE void operator()(Real g, Real& w, Real& d, Real& v, Real& z) const {
    const Real decayed = gradient.decayed(g, w);
    v = moments.second(v, decayed * decayed);
    const Real now = scale * (std::sqrt(v / second_taken) + moments.epsilon);
    z = moments.first(z, decayed) - (now - beta1 * d) * w;
    d = now;
    w = -z / d;
  }
};

struct Ftml : Elementwise<FtmlOptions> {
  static OptionFields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 3; }

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const double learning_rate = update.step().learning_rate;
    if (learning_rate == 0) return update.each(Unchanged<Real>{});  // it is a divisor
    update.each(FtmlFormula<Real>{update.gradient(), moments_of<Real>(options),
                                  static_cast<Real>(options.beta1),
                                  static_cast<Real>(update.taken(options.beta1) / learning_rate),
                                  static_cast<Real>(update.taken(options.beta2))});
  }
};

// --- the list --------------------------------------------------------------------------------

/// The optimizers of this family. All else that the library knows of them is made from this list.
// clang-format off
#define TUTTI_ADAM_FAMILY(rule) \
  rule(adam, Adam)              \
  rule(adamw, Adamw)            \
  rule(adabelief, Adabelief)    \
  rule(adamax, Adamax)          \
  rule(nadam, Nadam)            \
  rule(ftml, Ftml)
// clang-format on

struct AdamFamily {
  template <class Visit>
  static void each(Visit visit) {
    TUTTI_ADAM_FAMILY(TUTTI_VISIT_RULE)
  }
};

}  // namespace tutti::optimizer
