// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Adamax : ElementwiseRule {
  using Options = AdamaxOptions;
  static constexpr const char* kName = "adamax";
  static Fields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Real>
  static void apply(const Options& options, const Update<Real>& update) {
    const auto gradient = update.gradient();
    const auto rate = static_cast<Real>(update.step().learning_rate / update.taken(options.beta1));
    const Average<Real> first(options.beta1);
    const auto beta2 = static_cast<Real>(options.beta2);
    const auto epsilon = static_cast<Real>(options.epsilon);
    update.each([=](Real g, Real& w, Real& m, Real& u) {
      const Real decayed = gradient.decayed(g, w);
      m = first(m, decayed);
      const Real faded = beta2 * u;
      const Real size = std::abs(decayed);
      u = faded > size ? faded : size;
      w -= rate * m / (u + epsilon);
    });
  }
};

}  // namespace

std::shared_ptr<Optimizer> adamax(const AdamaxOptions& options) { return make<Adamax>(options); }

Row adamax_row() { return row_of<Adamax>(); }

}  // namespace tutti::optimizer
