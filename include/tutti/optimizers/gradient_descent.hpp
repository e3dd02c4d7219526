// SPDX-License-Identifier: Apache-2.0
// Gradient descent with and without momentum, and optimizers that are built on its step.
// The symbols of the formulas: optimizers.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "tutti/export.h"
#include "tutti/optimizer.hpp"

namespace tutti::optimizer {

struct SgdOptions {
  double learning_rate = 0.1;
  double momentum = 0.0;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// Stochastic gradient descent: m = momentum*m - lr*gd; w += m.
/// With momentum 0: w -= lr*gd, without state.
/// States  m, if momentum is above 0. Updates row-sparse keys, too.
TUTTI_API std::shared_ptr<Optimizer> sgd(const SgdOptions& options = {});

struct NagOptions {
  double learning_rate = 0.1;
  double momentum = 0.9;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// Nesterov's accelerated gradient: m = momentum*m - lr*gd; w += momentum*m - lr*gd.
/// States  m.
/// Source  Sutskever et al., ICML 2013.
TUTTI_API std::shared_ptr<Optimizer> nag(const NagOptions& options = {});

struct SignumOptions {
  double learning_rate = 0.01;
  double momentum = 0.9;
  double wd_lh = 0.0;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// The sign of the momentum: m = momentum*m - (1-momentum)*gd;
/// w = (1 - lr*wd_lh)*w + lr*sign(m). With momentum 0 (signSGD) without state.
/// States  m, if momentum is above 0.
/// Source  Bernstein et al., ICML 2018; wd_lh: Loshchilov and Hutter, ICLR 2019.
TUTTI_API std::shared_ptr<Optimizer> signum(const SignumOptions& options = {});

struct DcasgdOptions {
  double learning_rate = 0.1;
  double momentum = 0.0;
  double lambda = 0.04;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// Delay-compensated SGD: d = gd + lambda*gd^2*(w - w_before); m = momentum*m - lr*d;
/// w_before = w; w += m, where w_before starts as the weight itself.
/// States  w_before; m, if momentum is above 0.
/// Source  Zheng et al., ICML 2017.
TUTTI_API std::shared_ptr<Optimizer> dcasgd(const DcasgdOptions& options = {});

struct SgldOptions {
  double learning_rate = 0.1;
  std::uint64_t seed = 0;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// Stochastic gradient Langevin dynamics: w -= lr/2*gd; w += noise, normal with standard deviation
/// sqrt(lr). The noise is a function of seed, key, t and the element's index, so that every rank
/// draws the same.
/// States  none.
/// Source  Welling and Teh, ICML 2011; noise: SplitMix64 (Steele et al., OOPSLA 2014), Box-Muller.
TUTTI_API std::shared_ptr<Optimizer> sgld(const SgldOptions& options = {});

struct LarsOptions {
  double learning_rate = 0.1;
  double momentum = 0.0;
  double eta = 0.001;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// Layer-wise adaptive rate scaling: SGD with the rate times
/// eta*|w| / (|rescale_grad*g| + wd*|w| + epsilon), or times 1 if |w| or |g| is 0. Norms are
/// Euclidean, of the whole tensor; this g is not clipped.
/// States  m, if momentum is above 0.
/// Source  You, Gitman, Ginsburg, arXiv:1708.03888, 2017.
TUTTI_API std::shared_ptr<Optimizer> lars(const LarsOptions& options = {});

}  // namespace tutti::optimizer
