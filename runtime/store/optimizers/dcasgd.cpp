// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Dcasgd : ElementwiseRule {
  using Options = DcasgdOptions;
  static constexpr const char* kName = "dcasgd";
  static constexpr int kWeightState = 0;
  static Fields fields(Options& options) {
    return {{"momentum", &options.momentum, &kBelowOne},
            {"lambda", &options.lambda, &kNotNegative}};
  }
  static int num_states(const Options& options) { return options.momentum == 0 ? 1 : 2; }

  template <class Real>
  static void apply(const Options& options, const Update<Real>& update) {
    const auto gradient = update.gradient();
    const auto rate = update.rate();
    const auto lambda = static_cast<Real>(options.lambda);
    const auto momentum = static_cast<Real>(options.momentum);
    const auto compensated = [=](Real g, Real w, Real before) {
      const Real decayed = gradient.decayed(g, w);
      return decayed + lambda * decayed * decayed * (w - before);
    };
    if (momentum == 0) {
      update.each([=](Real g, Real& w, Real& before) {
        const Real step = rate * compensated(g, w, before);
        before = w;
        w -= step;
      });
    } else {
      update.each([=](Real g, Real& w, Real& before, Real& m) {
        m = momentum * m - rate * compensated(g, w, before);
        before = w;
        w += m;
      });
    }
  }
};

}  // namespace

std::shared_ptr<Optimizer> dcasgd(const DcasgdOptions& options) { return make<Dcasgd>(options); }

Row dcasgd_row() { return row_of<Dcasgd>(); }

}  // namespace tutti::optimizer
