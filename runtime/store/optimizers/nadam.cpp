// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

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

struct Nadam : ElementwiseRule {
  using Options = NadamOptions;
  static constexpr const char* kName = "nadam";
  static Fields fields(Options& options) {
    Fields fields = moment_fields(options);
    fields.push_back({"schedule_decay", &options.schedule_decay, &kNotNegative});
    return fields;
  }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Real>
  static void apply(const Options& options, const Update<Real>& update) {
    const Momenta momenta(options, update.step().count);
    const auto gradient = update.gradient();
    const auto rate = update.rate();
    const auto of_gradient = static_cast<Real>((1 - momenta.now) / (1 - momenta.product));
    const auto of_mean = static_cast<Real>(momenta.next / (1 - momenta.product * momenta.next));
    const auto second_taken = static_cast<Real>(update.taken(options.beta2));
    const Average<Real> first(options.beta1);
    const Average<Real> second(options.beta2);
    const auto epsilon = static_cast<Real>(options.epsilon);
    update.each([=](Real g, Real& w, Real& m, Real& v) {
      const Real decayed = gradient.decayed(g, w);
      m = first(m, decayed);
      v = second(v, decayed * decayed);
      w -= rate * (of_gradient * decayed + of_mean * m) / (std::sqrt(v / second_taken) + epsilon);
    });
  }
};

}  // namespace

std::shared_ptr<Optimizer> nadam(const NadamOptions& options) { return make<Nadam>(options); }

Row nadam_row() { return row_of<Nadam>(); }

}  // namespace tutti::optimizer
