// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Adabelief : ElementwiseRule {
  using Options = AdabeliefOptions;
  static constexpr const char* kName = "adabelief";
  static Fields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Real>
  static void apply(const Options& options, const Update<Real>& update) {
    const auto gradient = update.gradient();
    const auto rate = update.corrected_rate(options.beta1, options.beta2);
    const Average<Real> first(options.beta1);
    const Average<Real> second(options.beta2);
    const auto epsilon = static_cast<Real>(options.epsilon);
    update.each([=](Real g, Real& w, Real& m, Real& s) {
      const Real clipped = gradient.clip(gradient.rescaled(g) + gradient.decay(w));
      m = first(m, clipped);
      const Real surprise = clipped - m;
      s = second(s, surprise * surprise) + epsilon;
      w -= rate * m / (std::sqrt(s) + epsilon);
    });
  }
};

}  // namespace

std::shared_ptr<Optimizer> adabelief(const AdabeliefOptions& options) {
  return make<Adabelief>(options);
}

Row adabelief_row() { return row_of<Adabelief>(); }

}  // namespace tutti::optimizer
