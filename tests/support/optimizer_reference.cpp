// SPDX-License-Identifier: Apache-2.0
#include "tests/support/optimizer_reference.hpp"

#include <algorithm>
#include <cmath>

namespace test {

namespace {

double norm_of(const Doubles& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

double ratio(double above, double below) { return above == 0 || below == 0 ? 1 : above / below; }

}  // namespace

void add_to(Doubles& sum, const Doubles& values) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values.at(i);
}

const std::map<std::string, Numbers>& reference_defaults() {
  static const std::map<std::string, Numbers> kDefaults = {
      {"sgd", {{"learning_rate", .1}, {"momentum", 0}}},
      {"nag", {{"learning_rate", .1}, {"momentum", .9}}},
      {"signum", {{"learning_rate", .01}, {"momentum", .9}, {"wd_lh", 0}}},
      {"adagrad", {{"learning_rate", .01}, {"epsilon", 1e-6}}},
      {"adadelta", {{"learning_rate", 1}, {"rho", .9}, {"epsilon", 1e-6}}},
      {"adam", {{"learning_rate", .001}, {"beta1", .9}, {"beta2", .999}, {"epsilon", 1e-8}}},
      {"adamw", {{"learning_rate", .001}, {"beta1", .9}, {"beta2", .999}, {"epsilon", 1e-6}}},
      {"adabelief", {{"learning_rate", .001}, {"beta1", .9}, {"beta2", .999}, {"epsilon", 1e-6}}},
      {"adamax", {{"learning_rate", .002}, {"beta1", .9}, {"beta2", .999}, {"epsilon", 1e-8}}},
      {"nadam",
       {{"learning_rate", .001},
        {"beta1", .9},
        {"beta2", .999},
        {"epsilon", 1e-8},
        {"schedule_decay", .004}}},
      {"rmsprop",
       {{"learning_rate", .001},
        {"rho", .9},
        {"momentum", .9},
        {"epsilon", 1e-8},
        {"centered", 0}}},
      {"ftrl", {{"learning_rate", .1}, {"lambda1", .01}, {"beta", 1}}},
      {"ftml", {{"learning_rate", .0025}, {"beta1", .6}, {"beta2", .999}, {"epsilon", 1e-8}}},
      {"dcasgd", {{"learning_rate", .1}, {"momentum", 0}, {"lambda", .04}}},
      {"sgld", {{"learning_rate", .1}, {"seed", 0}}},
      {"lars", {{"learning_rate", .1}, {"momentum", 0}, {"eta", .001}, {"epsilon", 1e-8}}},
      {"lamb",
       {{"learning_rate", .001},
        {"beta1", .9},
        {"beta2", .999},
        {"epsilon", 1e-6},
        {"bias_correction", 1}}},
      {"lans", {{"learning_rate", .001}, {"beta1", .9}, {"beta2", .999}, {"epsilon", 1e-6}}},
      {"torch_sgd", {{"learning_rate", .001}, {"momentum", 0}, {"dampening", 0}, {"nesterov", 0}}},
      {"torch_adam",
       {{"learning_rate", .001},
        {"beta1", .9},
        {"beta2", .999},
        {"epsilon", 1e-8},
        {"amsgrad", 0},
        {"decoupled_weight_decay", 0}}},
      {"torch_adamw",
       {{"learning_rate", .001},
        {"beta1", .9},
        {"beta2", .999},
        {"epsilon", 1e-8},
        {"amsgrad", 0}}},
      {"torch_nadam",
       {{"learning_rate", .002},
        {"beta1", .9},
        {"beta2", .999},
        {"epsilon", 1e-8},
        {"momentum_decay", .004},
        {"decoupled_weight_decay", 0}}},
      {"torch_adamax",
       {{"learning_rate", .002}, {"beta1", .9}, {"beta2", .999}, {"epsilon", 1e-8}}},
      {"torch_rmsprop",
       {{"learning_rate", .01},
        {"alpha", .99},
        {"epsilon", 1e-8},
        {"momentum", 0},
        {"centered", 0}}},
      {"torch_adagrad",
       {{"learning_rate", .01},
        {"lr_decay", 0},
        {"initial_accumulator_value", 0},
        {"epsilon", 1e-10}}},
      {"torch_adadelta", {{"learning_rate", 1}, {"rho", .9}, {"epsilon", 1e-6}}}};
  return kDefaults;
}

Reference::Reference(std::string name, const Numbers& options) : name_(std::move(name)) {
  Numbers all = options;
  for (const auto& [option, value] : reference_defaults().at(name_)) all.emplace(option, value);
  all.emplace("rescale_grad", 1);
  all.emplace("clip_gradient", 1e300);
  lr_ = all["learning_rate"];
  wd_ = all["weight_decay"];
  rescale_grad_ = all["rescale_grad"];
  clip_gradient_ = all["clip_gradient"];
  momentum_ = all["momentum"];
  wd_lh_ = all["wd_lh"];
  rho_ = all["rho"] + all["alpha"];  // an optimizer has one of them at most
  lambda_ = all["lambda"];
  lambda1_ = all["lambda1"];
  beta_ = all["beta"];
  eta_ = all["eta"];
  epsilon_ = all["epsilon"];
  b1_ = all["beta1"];
  b2_ = all["beta2"];
  schedule_decay_ = all["schedule_decay"] + all["momentum_decay"];
  dampening_ = all["dampening"];
  lr_decay_ = all["lr_decay"];
  initial_ = all["initial_accumulator_value"];
  nesterov_ = all["nesterov"] != 0;
  amsgrad_ = all["amsgrad"] != 0;
  decoupled_ = name_ == "torch_adamw" || all["decoupled_weight_decay"] != 0;
  centered_ = all["centered"] != 0;
  bias_correction_ = name_ == "lans" || all["bias_correction"] != 0;
}

void Reference::step(const Doubles& gradient, Doubles& w) {
  if (t_++ == 0) {
    a_ = b_ = c_ = Doubles(w.size(), 0.0);
    if (name_ == "dcasgd") b_ = w;
  }
  bias1_ = 1 - std::pow(b1_, t_);
  bias2_ = 1 - std::pow(b2_, t_);
  mu_ = mu_of(t_);
  next_mu_ = mu_of(t_ + 1);
  product_ *= mu_;
  Doubles g(w.size());
  for (std::size_t i = 0; i < w.size(); ++i) g[i] = rescale_grad_ * gradient[i];
  if (name_ == "lars") return lars(g, w);
  if (name_ == "lamb") return lamb(g, w);
  if (name_ == "lans") return lans(g, w);
  for (std::size_t i = 0; i < w.size(); ++i) element(g[i], w[i], a_[i], b_[i], c_[i]);
}

double Reference::clip(double value) const {
  return std::min(std::max(value, -clip_gradient_), clip_gradient_);
}

double Reference::mu_of(double t) const {
  return b1_ * (1 - .5 * std::pow(.96, t * schedule_decay_));
}

void Reference::average(double& mean, double decay, double next) {
  mean = decay * mean + (1 - decay) * next;
}

void Reference::descend(double rate, double g, double& w, double& m) {
  m = momentum_ * m - rate * g;
  w += m;
}

void Reference::element(double rescaled, double& w, double& a, double& b, double& c) {
  const double plain = clip(rescaled);
  if (name_.starts_with("torch_")) return torch_element(plain, w, a, b, c);
  const double g = plain + wd_ * w;
  const double l = lr_ * std::sqrt(bias2_) / bias1_;
  if (name_ == "sgd") return descend(lr_, g, w, a);
  if (name_ == "sgld") {
    w -= lr_ / 2 * g;
  } else if (name_ == "nag") {
    a = momentum_ * a - lr_ * g;
    w += momentum_ * a - lr_ * g;
  } else if (name_ == "signum") {
    a = momentum_ * a - (1 - momentum_) * g;
    w = (1 - lr_ * wd_lh_) * w + lr_ * ((a > 0) - (a < 0));
  } else if (name_ == "dcasgd") {
    const double d = g + lambda_ * g * g * (w - b);
    b = w;
    descend(lr_, d, w, a);
  } else if (name_ == "adagrad") {
    a += g * g;
    w -= lr_ * g / (std::sqrt(a) + epsilon_);
  } else if (name_ == "adadelta") {
    average(a, rho_, g * g);
    const double d = std::sqrt(b + epsilon_) / std::sqrt(a + epsilon_) * g;
    average(b, rho_, d * d);
    w -= lr_ * d;
  } else if (name_ == "rmsprop") {
    average(a, rho_, g * g);
    average(b, rho_, g);
    if (!centered_) {
      w -= lr_ * g / (std::sqrt(a) + epsilon_);
    } else {
      descend(lr_, g / std::sqrt(a - b * b + epsilon_), w, c);
    }
  } else if (name_ == "ftrl") {
    const double more = std::sqrt(b + plain * plain) - std::sqrt(b);
    a += plain - more / lr_ * w;
    b += plain * plain;
    const double shrunk = std::max(std::abs(a) - lambda1_, 0.0);
    w = -std::copysign(shrunk, a) / ((beta_ + std::sqrt(b)) / lr_ + wd_);
  } else if (name_ == "adam" || name_ == "nadam" || name_ == "adamax") {
    average(a, b1_, g);
    c = std::max(b2_ * c, std::abs(g));
    average(b, b2_, g * g);
    const double mix = (1 - mu_) * g / (1 - product_) + next_mu_ * a / (1 - product_ * next_mu_);
    if (name_ == "adam") w -= l * a / (std::sqrt(b) + epsilon_);
    if (name_ == "adamax") w -= lr_ / bias1_ * a / (c + epsilon_);
    if (name_ == "nadam") w -= lr_ * mix / (std::sqrt(b / bias2_) + epsilon_);
  } else if (name_ == "adamw") {
    average(a, b1_, plain);
    average(b, b2_, plain * plain);
    w -= l * (a / (std::sqrt(b) + epsilon_) + wd_ * w);
  } else if (name_ == "adabelief") {
    const double clipped = clip(rescaled + wd_ * w);
    average(a, b1_, clipped);
    average(b, b2_, (clipped - a) * (clipped - a));
    b += epsilon_;
    w -= l * a / (std::sqrt(b) + epsilon_);
  } else if (name_ == "ftml") {
    average(a, b2_, g * g);
    const double d = bias1_ / lr_ * (std::sqrt(a / bias2_) + epsilon_);
    average(b, b1_, g);
    b -= (d - b1_ * c) * w;
    c = d;
    w = -b / d;
  }
}

/// Updates one element by the formulas in the documentation of torch.optim.
void Reference::torch_element(double plain, double& w, double& a, double& b, double& c) {
  const double g = decoupled_ ? plain : plain + wd_ * w;
  if (name_ == "torch_sgd") {
    a = t_ == 1 ? g : momentum_ * a + (1 - dampening_) * g;
    w -= lr_ * (momentum_ == 0 ? g : nesterov_ ? g + momentum_ * a : a);
  } else if (name_ == "torch_rmsprop") {
    average(a, rho_, g * g);
    average(b, rho_, g);
    const double spread = std::sqrt(centered_ ? a - b * b : a) + epsilon_;
    c = momentum_ * c + g / spread;
    w -= lr_ * c;
  } else if (name_ == "torch_adagrad") {
    a += (t_ == 1 ? initial_ : 0) + g * g;
    w -= lr_ / (1 + (t_ - 1) * lr_decay_) * g / (std::sqrt(a) + epsilon_);
  } else if (name_ == "torch_adadelta") {
    average(a, rho_, g * g);
    const double d = std::sqrt(b + epsilon_) / std::sqrt(a + epsilon_) * g;
    average(b, rho_, d * d);
    w -= lr_ * d;
  } else {
    if (decoupled_) w -= lr_ * wd_ * w;
    torch_adam(g, w, a, b, c);
  }
}

void Reference::torch_adam(double g, double& w, double& a, double& b, double& c) {
  average(a, b1_, g);
  if (name_ == "torch_adamax") {
    b = std::max(b2_ * b, std::abs(g) + epsilon_);
    w -= lr_ / bias1_ * a / b;
    return;
  }
  average(b, b2_, g * g);
  if (name_ == "torch_nadam") {
    const double mix = (1 - mu_) * g / (1 - product_) + next_mu_ * a / (1 - product_ * next_mu_);
    w -= lr_ * mix / (std::sqrt(b / bias2_) + epsilon_);
    return;
  }
  c = std::max(c, b);
  w -= lr_ * a / bias1_ / (std::sqrt((amsgrad_ ? c : b) / bias2_) + epsilon_);
}

void Reference::lars(const Doubles& g, Doubles& w) {
  const double wn = norm_of(w);
  const double gn = norm_of(g);
  const double layer = wn > 0 && gn > 0 ? eta_ * wn / (gn + wd_ * wn + epsilon_) : 1;
  for (std::size_t i = 0; i < w.size(); ++i) {
    descend(lr_ * layer, clip(g[i]) + wd_ * w[i], w[i], a_[i]);
  }
}

/// Puts m^ / (sqrt(v^) + epsilon) + wd*w into `a` after the moments have taken g in, and the same
/// of g itself into `b`.
void Reference::moments(const Doubles& g, const Doubles& w, Doubles& a, Doubles& b) {
  const double bias1 = bias_correction_ ? bias1_ : 1;
  const double bias2 = bias_correction_ ? bias2_ : 1;
  for (std::size_t i = 0; i < w.size(); ++i) {
    average(a_[i], b1_, g[i]);
    average(b_[i], b2_, g[i] * g[i]);
    const double spread = std::sqrt(b_[i] / bias2) + epsilon_;
    a[i] = a_[i] / bias1 / spread + wd_ * w[i];
    b[i] = g[i] / spread + wd_ * w[i];
  }
}

void Reference::lamb(Doubles g, Doubles& w) {
  for (double& value : g) value = clip(value);
  Doubles u(w.size());
  Doubles unused(w.size());
  moments(g, w, u, unused);
  const double rate = lr_ * ratio(norm_of(w), norm_of(u));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] -= rate * u[i];
}

void Reference::lans(Doubles g, Doubles& w) {
  const double norm = norm_of(g);
  for (double& value : g) value = norm == 0 ? 0 : clip(value / norm);
  Doubles a(w.size());
  Doubles b(w.size());
  moments(g, w, a, b);
  const double wn = norm_of(w);
  const double of_a = b1_ * ratio(wn, norm_of(a));
  const double of_b = (1 - b1_) * ratio(wn, norm_of(b));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] -= lr_ * (of_a * a[i] + of_b * b[i]);
}

std::size_t first_far(const Doubles& found, const Doubles& expected, double tolerance) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double most = tolerance * std::max(1.0, std::abs(expected[i]));
    if (!(std::abs(found[i] - expected[i]) <= most)) return i;
  }
  return found.size();
}

}  // namespace test
