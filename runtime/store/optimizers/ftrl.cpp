// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Ftrl : ElementwiseRule {
  using Options = FtrlOptions;
  static constexpr const char* kName = "ftrl";
  static Fields fields(Options& options) {
    return {{"lambda1", &options.lambda1, &kNotNegative}, {"beta", &options.beta, &kPositive}};
  }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Real>
  static void apply(const Options& options, const Update<Real>& update) {
    if (update.step().learning_rate == 0) return;  // the formula divides by it
    const auto gradient = update.gradient();
    const auto per_rate = static_cast<Real>(1 / update.step().learning_rate);
    const auto decay = static_cast<Real>(update.step().weight_decay);
    const auto lambda1 = static_cast<Real>(options.lambda1);
    const auto beta = static_cast<Real>(options.beta);
    update.each([=](Real g, Real& w, Real& z, Real& n) {
      const Real plain = gradient.plain(g);
      const Real sum = n + plain * plain;
      z += plain - (std::sqrt(sum) - std::sqrt(n)) * per_rate * w;
      n = sum;
      const Real lower = z - lambda1;
      const Real higher = z + lambda1;
      const Real shrunk = lower > 0 ? lower : higher < 0 ? higher : z * 0;
      w = -shrunk / ((beta + std::sqrt(n)) * per_rate + decay);
    });
  }
};

}  // namespace

std::shared_ptr<Optimizer> ftrl(const FtrlOptions& options) { return make<Ftrl>(options); }

Row ftrl_row() { return row_of<Ftrl>(); }

}  // namespace tutti::optimizer
