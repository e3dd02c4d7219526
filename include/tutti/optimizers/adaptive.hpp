// SPDX-License-Identifier: Apache-2.0
// Optimizers with a rate per element from the squares of past gradients.
// The symbols of the formulas: optimizers.hpp.
#pragma once

#include <memory>
#include <optional>

#include "tutti/export.h"
#include "tutti/optimizer.hpp"

namespace tutti::optimizer {

struct AdagradOptions {
  double learning_rate = 0.01;
  double epsilon = 1e-6;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// h += gd^2; w -= lr*gd / (sqrt(h) + epsilon).
/// States  h. Updates row-sparse keys, too.
/// Source  Duchi, Hazan, Singer, JMLR 12, 2011.
TUTTI_API std::shared_ptr<Optimizer> adagrad(const AdagradOptions& options = {});

struct AdadeltaOptions {
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
/// States  a, b.
/// Source  Zeiler, arXiv:1212.5701, 2012.
TUTTI_API std::shared_ptr<Optimizer> adadelta(const AdadeltaOptions& options = {});

struct RmspropOptions {
  double learning_rate = 0.001;
  double rho = 0.9;
  double momentum = 0.9;
  double epsilon = 1e-8;
  bool centered = false;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// v = rho*v + (1-rho)*gd^2; w -= lr*gd / (sqrt(v) + epsilon). If centered, also
/// a = rho*a + (1-rho)*gd; d = momentum*d - lr*gd/sqrt(max(v - a^2, 0) + epsilon); w += d instead.
/// Without `centered`, momentum has no part in it.
/// States  v; if centered, v, a, d.
/// Source  Tieleman and Hinton, lecture 6.5, 2012; centered: Graves, arXiv:1308.0850, 2013.
TUTTI_API std::shared_ptr<Optimizer> rmsprop(const RmspropOptions& options = {});

struct FtrlOptions {
  double learning_rate = 0.1;
  double lambda1 = 0.01;
  double beta = 1.0;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// Follow the regularized leader: z += g' - (sqrt(n + g'^2) - sqrt(n))/lr*w; n += g'^2;
/// w = -sign(z)*max(|z| - lambda1, 0) / ((beta + sqrt(n))/lr + wd). A rate of 0 changes nothing.
/// States  z, n.
/// Source  McMahan et al., KDD 2013.
TUTTI_API std::shared_ptr<Optimizer> ftrl(const FtrlOptions& options = {});

}  // namespace tutti::optimizer
