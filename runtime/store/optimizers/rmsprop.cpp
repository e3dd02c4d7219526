// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Rmsprop : ElementwiseRule {
  using Options = RmspropOptions;
  static constexpr const char* kName = "rmsprop";
  static Fields fields(Options& options) {
    return {{"rho", &options.rho, &kBelowOne},
            {"momentum", &options.momentum, &kBelowOne},
            {"epsilon", &options.epsilon, &kPositive},
            {"centered", &options.centered}};
  }
  static int num_states(const Options& options) { return options.centered ? 3 : 1; }

  template <class Real>
  static void apply(const Options& options, const Update<Real>& update) {
    const auto gradient = update.gradient();
    const auto rate = update.rate();
    const Average<Real> average(options.rho);
    const auto momentum = static_cast<Real>(options.momentum);
    const auto epsilon = static_cast<Real>(options.epsilon);
    if (!options.centered) {
      update.each([=](Real g, Real& w, Real& v) {
        const Real decayed = gradient.decayed(g, w);
        v = average(v, decayed * decayed);
        w -= rate * decayed / (std::sqrt(v) + epsilon);
      });
      return;
    }
    update.each([=](Real g, Real& w, Real& v, Real& a, Real& d) {
      const Real decayed = gradient.decayed(g, w);
      v = average(v, decayed * decayed);
      a = average(a, decayed);
      // Of equal gradients v - a^2 is 0, or rounds to less than -epsilon.
      const Real variance = v - a * a;
      const Real spread = (variance > 0 ? variance : variance * 0) + epsilon;
      d = momentum * d - rate * decayed / std::sqrt(spread);
      w += d;
    });
  }
};

}  // namespace

std::shared_ptr<Optimizer> rmsprop(const RmspropOptions& options) { return make<Rmsprop>(options); }

Row rmsprop_row() { return row_of<Rmsprop>(); }

}  // namespace tutti::optimizer
