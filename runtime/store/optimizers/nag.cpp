// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Nag : ElementwiseRule {
  using Options = NagOptions;
  static constexpr const char* kName = "nag";
  static Fields fields(Options& options) { return {{"momentum", &options.momentum, &kBelowOne}}; }
  static int num_states(const Options& /*options*/) { return 1; }

  template <class Real>
  static void apply(const Options& options, const Update<Real>& update) {
    const auto gradient = update.gradient();
    const auto rate = update.rate();
    const auto momentum = static_cast<Real>(options.momentum);
    update.each([=](Real g, Real& w, Real& m) {
      const Real step = rate * gradient.decayed(g, w);
      m = momentum * m - step;
      w += momentum * m - step;
    });
  }
};

}  // namespace

std::shared_ptr<Optimizer> nag(const NagOptions& options) { return make<Nag>(options); }

Row nag_row() { return row_of<Nag>(); }

}  // namespace tutti::optimizer
