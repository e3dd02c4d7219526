// SPDX-License-Identifier: Apache-2.0
// Adam, and optimizers built on its two moments m = b1*m + (1-b1)*g and v = b2*v + (1-b2)*g^2.
//
// Below, m^ = m/(1 - b1^t), v^ = v/(1 - b2^t), and l = lr*sqrt(1 - b2^t)/(1 - b1^t). The symbols of
// the formulas: optimizers.hpp.
#pragma once

#include <memory>
#include <optional>

#include "tutti/export.h"
#include "tutti/optimizer.hpp"

namespace tutti::optimizer {

struct AdamOptions {
  double learning_rate = 0.001;
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

/// Moments of gd; w -= l*m / (sqrt(v) + epsilon).
/// States  m, v. Updates row-sparse keys, too.
/// Source  Kingma and Ba, ICLR 2015.
TUTTI_API std::shared_ptr<Optimizer> adam(const AdamOptions& options = {});

struct AdamwOptions {
  double learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// Decoupled weight decay: moments of g'; w -= l*(m / (sqrt(v) + epsilon) + wd*w).
/// States  m, v.
/// Source  Loshchilov and Hutter, ICLR 2019.
TUTTI_API std::shared_ptr<Optimizer> adamw(const AdamwOptions& options = {});

struct AdabeliefOptions {
  double learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// g = clip(rescale_grad*g + wd*w); s = b2*s + (1-b2)*(g - m)^2 + epsilon;
/// w -= l*m / (sqrt(s) + epsilon).
/// States  m, s.
/// Source  Zhuang et al., NeurIPS 2020.
TUTTI_API std::shared_ptr<Optimizer> adabelief(const AdabeliefOptions& options = {});

struct AdamaxOptions {
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

/// u = max(b2*u, |gd|); w -= lr/(1 - b1^t)*m / (u + epsilon).
/// States  m, u.
/// Source  Kingma and Ba, ICLR 2015, section 7.1.
TUTTI_API std::shared_ptr<Optimizer> adamax(const AdamaxOptions& options = {});

struct NadamOptions {
  double learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double schedule_decay = 0.004;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// With mu(t) = b1*(1 - 0.96^(t*schedule_decay)/2) and P = mu(1)*...*mu(t), moments of gd:
/// w -= lr*((1 - mu(t))*gd/(1 - P) + mu(t+1)*m/(1 - P*mu(t+1))) / (sqrt(v^) + epsilon).
/// States  m, v.
/// Source  Dozat, ICLR workshop 2016.
TUTTI_API std::shared_ptr<Optimizer> nadam(const NadamOptions& options = {});

struct FtmlOptions {
  double learning_rate = 0.0025;
  double beta1 = 0.6;
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

/// Follow the moving leader, v of gd: e = (1 - b1^t)/lr*(sqrt(v^) + epsilon);
/// z = b1*z + (1-b1)*gd - (e - b1*d)*w; d = e; w = -z/d. A rate of 0 changes nothing.
/// States  d, v, z.
/// Source  Zheng and Kwok, ICML 2017.
TUTTI_API std::shared_ptr<Optimizer> ftml(const FtmlOptions& options = {});

struct LambOptions {
  double learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  bool bias_correction = true;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// Moments of g'; u = m^ / (sqrt(v^) + epsilon) + wd*w; w -= lr*|w|/|u|*u, the ratio 1 if a norm
/// is 0. Norms are Euclidean, of the whole tensor. Without bias_correction m^ = m and v^ = v.
/// States  m, v.
/// Source  You et al., ICLR 2020.
TUTTI_API std::shared_ptr<Optimizer> lamb(const LambOptions& options = {});

struct LansOptions {
  double learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.0;
  double rescale_grad = 1.0;
  std::optional<double> clip_gradient{};
  bool multi_precision = false;
  std::optional<Schedule> schedule{};
  std::optional<double> clip_global_norm{};
  std::optional<LossScale> loss_scale{};
};

/// g = clip(rescale_grad*g / |rescale_grad*g|); D = sqrt(v^) + epsilon; a = m^/D + wd*w;
/// b = g/D + wd*w; w -= lr*(b1*|w|/|a|*a + (1-b1)*|w|/|b|*b), a ratio is 1 if a norm is 0. Norms
/// are Euclidean, of the whole tensor.
/// States  m, v.
/// Source  Zheng et al., arXiv:2006.13484, 2020.
TUTTI_API std::shared_ptr<Optimizer> lans(const LansOptions& options = {});

}  // namespace tutti::optimizer
