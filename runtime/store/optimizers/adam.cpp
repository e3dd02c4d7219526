// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "runtime/digest.hpp"
#include "runtime/store/optimizers/gradient.hpp"

namespace tutti::optimizer {

namespace {

/// By repeated squaring: libm's pow differs between machines.
double power(double base, std::uint64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

class Adam final : public Optimizer {
 public:
  explicit Adam(const AdamOptions& options)
      : Optimizer({options.learning_rate, options.weight_decay, options.rescale_grad,
                   options.clip_gradient}),
        beta1_(options.beta1),
        beta2_(options.beta2),
        epsilon_(options.epsilon) {}

  [[nodiscard]] std::string name() const override { return "adam"; }
  [[nodiscard]] int num_states() const override { return 2; }
  [[nodiscard]] std::uint64_t fingerprint() const override {
    return Digest().add(Optimizer::fingerprint()).add(beta1_).add(beta2_).add(epsilon_).value();
  }

  void update(const UpdateStep& step, std::span<const float> gradient, std::span<float> weight,
              std::span<float* const> states) const override {
    update_any(step, gradient, weight, states);
  }
  void update(const UpdateStep& step, std::span<const double> gradient, std::span<double> weight,
              std::span<double* const> states) const override {
    update_any(step, gradient, weight, states);
  }

 private:
  template <class Real>
  void update_any(const UpdateStep& step, std::span<const Real> gradient, std::span<Real> weight,
                  std::span<Real* const> states) const {
    const Gradient<Real> prepared(options(), step);
    const double correction =
        std::sqrt(1 - power(beta2_, step.count)) / (1 - power(beta1_, step.count));
    const auto rate = static_cast<Real>(step.learning_rate * correction);
    const auto beta1 = static_cast<Real>(beta1_);
    const auto beta2 = static_cast<Real>(beta2_);
    const auto rest1 = static_cast<Real>(1 - beta1_);
    const auto rest2 = static_cast<Real>(1 - beta2_);
    const auto epsilon = static_cast<Real>(epsilon_);
    const std::size_t count = weight.size();
    const Real* g = gradient.data();
    Real* w = weight.data();
    Real* m = states[0];
    Real* v = states[1];
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) {
      const Real now = prepared(g[i], w[i]);
      m[i] = beta1 * m[i] + rest1 * now;
      v[i] = beta2 * v[i] + rest2 * now * now;
      w[i] -= rate * m[i] / (std::sqrt(v[i]) + epsilon);
    }
  }

  double beta1_;
  double beta2_;
  double epsilon_;
};

}  // namespace

std::shared_ptr<Optimizer> adam(const AdamOptions& options) {
  return std::make_shared<Adam>(options);
}

}  // namespace tutti::optimizer
