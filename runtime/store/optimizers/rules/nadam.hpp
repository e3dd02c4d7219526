// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/adam_family.hpp"

#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

/// mu(t), mu(t+1) and P = mu(1)*...*mu(t), which is not kept from update to update: it is computed
/// anew from t, up to where another factor no longer changes 1 - P (at most 40 / (1 - beta1)).
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

  TUTTI_ON_ANY void operator()(Real g, Real& w, Real& m, Real& v) const {
    const Real decayed = gradient.decayed(g, w);
    m = moments.first(m, decayed);
    v = moments.second(v, decayed * decayed);
    w -= rate * (of_gradient * decayed + of_mean * m) /
         (std::sqrt(v / second_taken) + moments.epsilon);
  }
};

struct NadamRule {
  using Options = NadamOptions;

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

}  // namespace tutti::optimizer
