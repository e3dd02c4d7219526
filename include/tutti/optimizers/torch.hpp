// SPDX-License-Identifier: Apache-2.0
// The optimizers of torch.optim, with PyTorch's formulas, options and states: a training goes on
// from one to the other. The names begin with torch_, because others mean something else here:
// adamw is MXNet's, with the weight decay times the corrected rate.
//
// Below, mix(a, b, k) = a + k*(b - a), c1 = 1 - b1^t and c2 = 1 - b2^t. With
// decoupled_weight_decay, g is g' and w is multiplied by 1 - lr*wd first; else g is gd. torch's
// maximize=True is a negative rescale_grad. The symbols of the formulas: optimizers.hpp.
#pragma once

#include <memory>
#include <optional>

#include "tutti/export.h"
#include "tutti/optimizer.hpp"

namespace tutti::optimizer {

struct TorchSgdOptions {
  double learning_rate = 0.001;
  double momentum = 0.0;
  double dampening = 0.0;
  bool nesterov = false;  ///< has no effect without momentum
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// b = momentum*b + (1-dampening)*gd, at t = 1 b = gd; w -= lr*b, or with nesterov
/// w -= lr*(gd + momentum*b). Without momentum w -= lr*gd.
/// States  momentum_buffer; none without momentum.
TUTTI_API std::shared_ptr<Optimizer> torch_sgd(const TorchSgdOptions& options = {});

struct TorchAdamOptions {
  double learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool amsgrad = false;
  bool decoupled_weight_decay = false;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// m = mix(m, g, 1-b1); v = b2*v + (1-b2)*g^2; w -= lr/c1*m / (sqrt(v)/sqrt(c2) + epsilon);
/// with amsgrad the largest v so far in place of v.
/// States  exp_avg, exp_avg_sq; with amsgrad max_exp_avg_sq.
TUTTI_API std::shared_ptr<Optimizer> torch_adam(const TorchAdamOptions& options = {});

struct TorchAdamwOptions {
  double learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool amsgrad = false;
  double weight_decay = 0.0;  ///< torch's own default is 0.01
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// torch_adam with decoupled_weight_decay.
TUTTI_API std::shared_ptr<Optimizer> torch_adamw(const TorchAdamwOptions& options = {});

struct TorchNadamOptions {
  double learning_rate = 0.002;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double momentum_decay = 0.004;
  bool decoupled_weight_decay = false;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// m and v as torch_adam's; with mu(t) = b1*(1 - 0.96^(t*momentum_decay)/2) and
/// P = mu(1)*...*mu(t), w -= lr*((1 - mu(t))/(1 - P)*g + mu(t+1)/(1 - P*mu(t+1))*m)
/// / (sqrt(v/c2) + epsilon).
/// States  exp_avg, exp_avg_sq.
TUTTI_API std::shared_ptr<Optimizer> torch_nadam(const TorchNadamOptions& options = {});

struct TorchAdamaxOptions {
  double learning_rate = 0.002;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// m = mix(m, gd, 1-b1); u = max(b2*u, |gd| + epsilon); w -= lr/c1*m/u.
/// States  exp_avg, exp_inf.
TUTTI_API std::shared_ptr<Optimizer> torch_adamax(const TorchAdamaxOptions& options = {});

struct TorchRmspropOptions {
  double learning_rate = 0.01;
  double alpha = 0.99;
  double epsilon = 1e-8;
  double momentum = 0.0;
  bool centered = false;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// v = alpha*v + (1-alpha)*gd^2; s = sqrt(v) + epsilon; if centered, a = mix(a, gd, 1-alpha) and
/// s = sqrt(v - a^2) + epsilon. w -= lr*gd/s, or with momentum d = momentum*d + gd/s; w -= lr*d.
/// A v - a^2 that rounding has made negative is 0, where torch's weights become NaN.
/// States  square_avg; if centered grad_avg; with momentum momentum_buffer.
TUTTI_API std::shared_ptr<Optimizer> torch_rmsprop(const TorchRmspropOptions& options = {});

struct TorchAdagradOptions {
  double learning_rate = 0.01;
  double lr_decay = 0.0;
  double initial_accumulator_value = 0.0;
  double epsilon = 1e-10;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// h += gd^2, from initial_accumulator_value on; w -= lr/(1 + (t-1)*lr_decay)*gd
/// / (sqrt(h) + epsilon).
/// States  sum.
TUTTI_API std::shared_ptr<Optimizer> torch_adagrad(const TorchAdagradOptions& options = {});

struct TorchAdadeltaOptions {
  double learning_rate = 1.0;
  double rho = 0.9;
  double epsilon = 1e-6;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// a = rho*a + (1-rho)*gd^2; d = sqrt(b+epsilon)/sqrt(a+epsilon)*gd; b = rho*b + (1-rho)*d^2;
/// w -= lr*d.
/// States  square_avg, acc_delta.
TUTTI_API std::shared_ptr<Optimizer> torch_adadelta(const TorchAdadeltaOptions& options = {});

}  // namespace tutti::optimizer
