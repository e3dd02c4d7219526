// SPDX-License-Identifier: Apache-2.0
// Optimizers that a store runs as its updater.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "tutti/key.hpp"

namespace tutti {

/// What every optimizer has. The gradient that enters the formulas is
/// g' = clip(rescale_grad * g, -clip_gradient, +clip_gradient).
struct OptimizerOptions {
  double learning_rate = 0.01;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;              ///< 1 / global batch size makes sums means
  std::optional<double> clip_gradient{};  ///< no clipping unless set; > 0
};

/// One key's update, the same on every rank: what the formulas need besides the elements.
struct UpdateStep {
  std::uint64_t count;   ///< updates of this key including this one: 1, 2, ...
  double learning_rate;  ///< times the key's lr_mult
  double weight_decay;   ///< times the key's wd_mult
};

/// An elementwise optimizer: element i of the weight depends on element i of the gradient and of
/// the states only, so that any range of elements can be updated by itself.
///
/// The store keeps the state tensors (zero at first, same shape and dtype as the weight) and the
/// update counts. Weights are float32 or float64. Options changed later take effect at the next
/// push; all ranks must change them alike (the store compares).
class Optimizer {
 public:
  explicit Optimizer(OptimizerOptions options);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  [[nodiscard]] virtual std::string name() const = 0;
  /// Number of state tensors per key.
  [[nodiscard]] virtual int num_states() const = 0;

  /// Updates `weight` and `states` in place from `gradient`; all have the same length.
  virtual void update(const UpdateStep& step, std::span<const float> gradient,
                      std::span<float> weight, std::span<float* const> states) const = 0;
  virtual void update(const UpdateStep& step, std::span<const double> gradient,
                      std::span<double> weight, std::span<double* const> states) const = 0;

  void set_learning_rate(double learning_rate);
  [[nodiscard]] double learning_rate() const noexcept { return options_.learning_rate; }
  [[nodiscard]] const OptimizerOptions& options() const noexcept { return options_; }

  /// Factors of one key's learning rate and weight decay. Default 1.
  void set_lr_mult(const Key& key, double factor) { lr_mult_[key] = factor; }
  void set_wd_mult(const Key& key, double factor) { wd_mult_[key] = factor; }
  [[nodiscard]] UpdateStep step(const Key& key, std::uint64_t count) const;

  /// Depends on every value that an update depends on; the store compares it between ranks.
  [[nodiscard]] virtual std::uint64_t fingerprint() const;

 private:
  OptimizerOptions options_;
  std::unordered_map<Key, double> lr_mult_;
  std::unordered_map<Key, double> wd_mult_;
};

namespace optimizer {

struct SgdOptions {
  double learning_rate = 0.1;
  double momentum = 0.0;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
};

/// Stochastic gradient descent: g = g' + wd*w; m = momentum*m - lr*g; w += m.
/// With momentum 0: w -= lr*g, without state.
std::shared_ptr<Optimizer> sgd(const SgdOptions& options = {});

struct AdamOptions {
  double learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
};

/// Adam (Kingma and Ba, 2015): g = g' + wd*w; m = b1*m + (1-b1)*g; v = b2*v + (1-b2)*g*g;
/// w -= lr * sqrt(1-b2^t)/(1-b1^t) * m / (sqrt(v) + epsilon).
std::shared_ptr<Optimizer> adam(const AdamOptions& options = {});

}  // namespace optimizer
}  // namespace tutti
