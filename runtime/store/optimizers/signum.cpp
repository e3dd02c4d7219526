// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

/// 0 and NaN are their own sign.
template <class Real>
Real sign(Real value) {
  return value > 0 ? Real{1} : value < 0 ? Real{-1} : value;
}

struct Signum : ElementwiseRule {
  using Options = SignumOptions;
  static constexpr const char* kName = "signum";
  static Fields fields(Options& options) {
    return {{"momentum", &options.momentum, &kBelowOne}, {"wd_lh", &options.wd_lh, &kNotNegative}};
  }
  static int num_states(const Options& options) { return options.momentum == 0 ? 0 : 1; }

  template <class Real>
  static void apply(const Options& options, const Update<Real>& update) {
    const auto gradient = update.gradient();
    const auto rate = update.rate();
    const auto kept = static_cast<Real>(1 - update.step().learning_rate * options.wd_lh);
    const Average<Real> average(options.momentum);
    if (options.momentum == 0) {
      update.each([=](Real g, Real& w) { w = kept * w + rate * sign(-gradient.decayed(g, w)); });
    } else {
      update.each([=](Real g, Real& w, Real& m) {
        m = average(m, -gradient.decayed(g, w));
        w = kept * w + rate * sign(m);
      });
    }
  }
};

}  // namespace

std::shared_ptr<Optimizer> signum(const SignumOptions& options) { return make<Signum>(options); }

Row signum_row() { return row_of<Signum>(); }

}  // namespace tutti::optimizer
