// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Adam : ElementwiseRule {
  using Options = AdamOptions;
  static constexpr const char* kName = "adam";
  static constexpr bool kUpdatesRows = true;
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
      const Real decayed = gradient.decayed(g, w);
      m = first(m, decayed);
      v = second(v, decayed * decayed);
      w -= rate * m / (std::sqrt(v) + epsilon);
    });
  }
};

}  // namespace

std::shared_ptr<Optimizer> adam(const AdamOptions& options) { return make<Adam>(options); }

Row adam_row() { return row_of<Adam>(); }

}  // namespace tutti::optimizer
