// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Lamb : WholeTensorRule {
  using Options = LambOptions;
  static constexpr const char* kName = "lamb";
  static Fields fields(Options& options) {
    Fields fields = moment_fields(options);
    fields.push_back({"bias_correction", &options.bias_correction});
    return fields;
  }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Real>
  static void apply(const Options& options, const Update<Real>& update) {
    const auto gradient = update.gradient();
    const bool corrected = options.bias_correction;
    const auto first_taken = static_cast<Real>(corrected ? update.taken(options.beta1) : 1);
    const auto second_taken = static_cast<Real>(corrected ? update.taken(options.beta2) : 1);
    const Average<Real> first(options.beta1);
    const Average<Real> second(options.beta2);
    const auto epsilon = static_cast<Real>(options.epsilon);
    const auto direction = [=](Real w, Real m, Real v) {
      return m / first_taken / (std::sqrt(v / second_taken) + epsilon) + gradient.decay(w);
    };
    const double w_norm = update.norm([](Real, Real& w) { return w; });
    const double u_norm = update.norm([=](Real g, Real& w, Real& m, Real& v) {
      const Real plain = gradient.plain(g);
      m = first(m, plain);
      v = second(v, plain * plain);
      return direction(w, m, v);
    });
    const auto rate = static_cast<Real>(update.step().learning_rate * norm_ratio(w_norm, u_norm));
    update.each([=](Real, Real& w, Real& m, Real& v) { w -= rate * direction(w, m, v); });
  }
};

}  // namespace

std::shared_ptr<Optimizer> lamb(const LambOptions& options) { return make<Lamb>(options); }

Row lamb_row() { return row_of<Lamb>(); }

}  // namespace tutti::optimizer
