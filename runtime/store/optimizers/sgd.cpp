// SPDX-License-Identifier: Apache-2.0
#include "runtime/digest.hpp"
#include "runtime/store/optimizers/gradient.hpp"

namespace tutti::optimizer {

namespace {

class Sgd final : public Optimizer {
 public:
  explicit Sgd(const SgdOptions& options)
      : Optimizer({options.learning_rate, options.weight_decay, options.rescale_grad,
                   options.clip_gradient}),
        momentum_(options.momentum) {}

  [[nodiscard]] std::string name() const override { return "sgd"; }
  [[nodiscard]] int num_states() const override { return momentum_ == 0 ? 0 : 1; }
  [[nodiscard]] std::uint64_t fingerprint() const override {
    return Digest().add(Optimizer::fingerprint()).add(momentum_).value();
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
    const auto rate = static_cast<Real>(step.learning_rate);
    const std::size_t count = weight.size();
    const Real* g = gradient.data();
    Real* w = weight.data();
    if (momentum_ == 0) {
#pragma GCC ivdep
      for (std::size_t i = 0; i < count; ++i) w[i] -= rate * prepared(g[i], w[i]);
      return;
    }
    const auto momentum = static_cast<Real>(momentum_);
    Real* m = states[0];
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) {
      m[i] = momentum * m[i] - rate * prepared(g[i], w[i]);
      w[i] += m[i];
    }
  }

  double momentum_;
};

}  // namespace

std::shared_ptr<Optimizer> sgd(const SgdOptions& options) { return std::make_shared<Sgd>(options); }

}  // namespace tutti::optimizer
