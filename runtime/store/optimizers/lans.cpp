// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Lans : WholeTensorRule {
  using Options = LansOptions;
  static constexpr const char* kName = "lans";
  static Fields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 2; }

  template <class Real>
  static void apply(const Options& options, const Update<Real>& update) {
    const auto gradient = update.gradient();
    const double g_norm = update.norm([=](Real g, Real&) { return gradient.rescaled(g); });
    const auto divisor = static_cast<Real>(g_norm == 0 ? 1 : g_norm);
    const auto first_taken = static_cast<Real>(update.taken(options.beta1));
    const auto second_taken = static_cast<Real>(update.taken(options.beta2));
    const Average<Real> first(options.beta1);
    const Average<Real> second(options.beta2);
    const auto epsilon = static_cast<Real>(options.epsilon);
    const auto normalized = [=](Real g) { return gradient.clip(gradient.rescaled(g) / divisor); };
    const auto along_mean = [=](Real w, Real m, Real v) {
      return m / first_taken / (std::sqrt(v / second_taken) + epsilon) + gradient.decay(w);
    };
    const auto along_gradient = [=](Real g, Real w, Real v) {
      return normalized(g) / (std::sqrt(v / second_taken) + epsilon) + gradient.decay(w);
    };
    const double w_norm = update.norm([](Real, Real& w) { return w; });
    const double a_norm = update.norm([=](Real g, Real& w, Real& m, Real& v) {
      m = first(m, normalized(g));
      v = second(v, normalized(g) * normalized(g));
      return along_mean(w, m, v);
    });
    const double b_norm =
        update.norm([=](Real g, Real& w, Real& /*m*/, Real& v) { return along_gradient(g, w, v); });
    const double rate = update.step().learning_rate;
    const auto a_rate = static_cast<Real>(rate * options.beta1 * norm_ratio(w_norm, a_norm));
    const auto b_rate = static_cast<Real>(rate * (1 - options.beta1) * norm_ratio(w_norm, b_norm));
    update.each([=](Real g, Real& w, Real& m, Real& v) {
      w -= a_rate * along_mean(w, m, v) + b_rate * along_gradient(g, w, v);
    });
  }
};

}  // namespace

std::shared_ptr<Optimizer> lans(const LansOptions& options) { return make<Lans>(options); }

Row lans_row() { return row_of<Lans>(); }

}  // namespace tutti::optimizer
