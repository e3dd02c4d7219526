// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Ftml : ElementwiseRule {
  using Options = FtmlOptions;
  static constexpr const char* kName = "ftml";
  static Fields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 3; }

  template <class Real>
  static void apply(const Options& options, const Update<Real>& update) {
    if (update.step().learning_rate == 0) return;  // the formula divides by it
    const auto gradient = update.gradient();
    const auto scale = static_cast<Real>(update.taken(options.beta1) / update.step().learning_rate);
    const auto second_taken = static_cast<Real>(update.taken(options.beta2));
    const auto beta1 = static_cast<Real>(options.beta1);
    const Average<Real> first(options.beta1);
    const Average<Real> second(options.beta2);
    const auto epsilon = static_cast<Real>(options.epsilon);
    update.each([=](Real g, Real& w, Real& d, Real& v, Real& z) {
      const Real decayed = gradient.decayed(g, w);
      v = second(v, decayed * decayed);
      const Real now = scale * (std::sqrt(v / second_taken) + epsilon);
      z = first(z, decayed) - (now - beta1 * d) * w;
      d = now;
      w = -z / d;
    });
  }
};

}  // namespace

std::shared_ptr<Optimizer> ftml(const FtmlOptions& options) { return make<Ftml>(options); }

Row ftml_row() { return row_of<Ftml>(); }

}  // namespace tutti::optimizer
