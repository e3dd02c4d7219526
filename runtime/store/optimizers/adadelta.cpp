// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Adadelta : ElementwiseRule {
  using Options = AdadeltaOptions;
  static constexpr const char* kName = "adadelta";
  static Fields fields(Options& options) {
    return {{"rho", &options.rho, &kBelowOne}, {"epsilon", &options.epsilon, &kPositive}};
  }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Real>
  static void apply(const Options& options, const Update<Real>& update) {
    const auto gradient = update.gradient();
    const auto rate = update.rate();
    const Average<Real> average(options.rho);
    const auto epsilon = static_cast<Real>(options.epsilon);
    update.each([=](Real g, Real& w, Real& a, Real& b) {
      const Real decayed = gradient.decayed(g, w);
      a = average(a, decayed * decayed);
      const Real step = std::sqrt(b + epsilon) / std::sqrt(a + epsilon) * decayed;
      b = average(b, step * step);
      w -= rate * step;
    });
  }
};

}  // namespace

std::shared_ptr<Optimizer> adadelta(const AdadeltaOptions& options) {
  return make<Adadelta>(options);
}

Row adadelta_row() { return row_of<Adadelta>(); }

}  // namespace tutti::optimizer
