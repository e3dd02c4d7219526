// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Lars : WholeTensorRule {
  using Options = LarsOptions;
  static constexpr const char* kName = "lars";
  static Fields fields(Options& options) {
    return {{"momentum", &options.momentum, &kBelowOne},
            {"eta", &options.eta, &kPositive},
            {"epsilon", &options.epsilon, &kPositive}};
  }
  static int num_states(const Options& options) { return options.momentum == 0 ? 0 : 1; }

  template <class Real>
  static void apply(const Options& options, const Update<Real>& update) {
    const auto gradient = update.gradient();
    const double w_norm = update.norm([](Real, Real& w) { return w; });
    const double g_norm = update.norm([=](Real g, Real&) { return gradient.rescaled(g); });
    const double layer = w_norm > 0 && g_norm > 0
                             ? options.eta * w_norm /
                                   (g_norm + update.step().weight_decay * w_norm + options.epsilon)
                             : 1.0;
    const auto rate = static_cast<Real>(update.step().learning_rate * layer);
    descend(update, rate, options.momentum);
  }
};

}  // namespace

std::shared_ptr<Optimizer> lars(const LarsOptions& options) { return make<Lars>(options); }

Row lars_row() { return row_of<Lars>(); }

}  // namespace tutti::optimizer
