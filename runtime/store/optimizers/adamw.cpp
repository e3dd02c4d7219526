// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Adamw : ElementwiseRule {
  using Options = AdamwOptions;
  static constexpr const char* kName = "adamw";
  static Fields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Real>
  static void apply(const Options& options, const Update<Real>& update) {
    const auto gradient = update.gradient();
    const auto rate = update.corrected_rate(options.beta1, options.beta2);
    const Average<Real> first(options.beta1);
    const Average<Real> second(options.beta2);
    const auto epsilon = static_cast<Real>(options.epsilon);
    update.each([=](Real g, Real& w, Real& m, Real& v) {
      const Real plain = gradient.plain(g);
      m = first(m, plain);
      v = second(v, plain * plain);
      w -= rate * (m / (std::sqrt(v) + epsilon) + gradient.decay(w));
    });
  }
};

}  // namespace

std::shared_ptr<Optimizer> adamw(const AdamwOptions& options) { return make<Adamw>(options); }

Row adamw_row() { return row_of<Adamw>(); }

}  // namespace tutti::optimizer
