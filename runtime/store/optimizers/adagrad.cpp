// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Adagrad : ElementwiseRule {
  using Options = AdagradOptions;
  static constexpr const char* kName = "adagrad";
  static constexpr bool kUpdatesRows = true;
  static Fields fields(Options& options) { return {{"epsilon", &options.epsilon, &kPositive}}; }
  static int num_states(const Options& /*options*/) { return 1; }

  template <class Real>
  static void apply(const Options& options, const Update<Real>& update) {
    const auto gradient = update.gradient();
    const auto rate = update.rate();
    const auto epsilon = static_cast<Real>(options.epsilon);
    update.each([=](Real g, Real& w, Real& h) {
      const Real decayed = gradient.decayed(g, w);
      h += decayed * decayed;
      w -= rate * decayed / (std::sqrt(h) + epsilon);
    });
  }
};

}  // namespace

std::shared_ptr<Optimizer> adagrad(const AdagradOptions& options) { return make<Adagrad>(options); }

Row adagrad_row() { return row_of<Adagrad>(); }

}  // namespace tutti::optimizer
