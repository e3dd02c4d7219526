// SPDX-License-Identifier: Apache-2.0
// Every optimizer once more: element by element, in double precision, straight from the formulas.
// A new optimizer has its options in reference_defaults() and its formula in Reference. All tests
// of optimizers take their names from here.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tutti/tutti.hpp"

#include "tests/mpi/oracle.hpp"

namespace test {

using Doubles = std::vector<double>;
using Numbers = std::map<std::string, double>;  ///< options by name; flags are 0 or 1

inline Doubles to_doubles(const tutti::ConstTensorView& tensor) {
  tutti::Tensor wide = tutti::Tensor::empty(tensor.shape(), tutti::DType::float64);
  wide.view().copy_from(tensor);
  const auto values = wide.values<double>();
  return {values.begin(), values.end()};
}

inline double norm_of(const Doubles& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

inline double ratio(double above, double below) {
  return above == 0 || below == 0 ? 1 : above / below;
}

/// The options of each optimizer besides the common ones, with their defaults.
inline const std::map<std::string, Numbers>& reference_defaults() {
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
      {"lans", {{"learning_rate", .001}, {"beta1", .9}, {"beta2", .999}, {"epsilon", 1e-6}}}};
  return kDefaults;
}

/// True if the formula has norms of whole tensors.
inline bool takes_norms(const std::string& name) {
  return name == "lars" || name == "lamb" || name == "lans";
}

/// One key. sgld is left without its noise.
class Reference {
 public:
  Reference(std::string name, const Numbers& options) : name_(std::move(name)), o_(options) {
    for (const auto& [option, value] : reference_defaults().at(name_)) o_.emplace(option, value);
    o_.emplace("weight_decay", 0);
    o_.emplace("rescale_grad", 1);
    lr_ = o_["learning_rate"];
    wd_ = o_["weight_decay"];
  }
  void multiply(double lr_mult, double wd_mult) {
    lr_ *= lr_mult;
    wd_ *= wd_mult;
  }
  void set_learning_rate(double rate) { lr_ = rate; }

  void step(const Doubles& gradient, Doubles& w) {
    if (t_++ == 0) {
      a_ = b_ = c_ = Doubles(w.size(), 0.0);
      if (name_ == "dcasgd") b_ = w;
    }
    const double mu = mu_of(t_);
    product_ *= mu;
    Doubles g(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) g[i] = o_["rescale_grad"] * gradient[i];
    if (name_ == "lars") return lars(g, w);
    if (name_ == "lamb") return lamb(g, w);
    if (name_ == "lans") return lans(g, w);
    for (std::size_t i = 0; i < w.size(); ++i) element(g[i], w[i], a_[i], b_[i], c_[i]);
  }

 private:
  [[nodiscard]] double clip(double value) {
    const double most = o_.contains("clip_gradient") ? o_["clip_gradient"] : 1e300;
    return std::min(std::max(value, -most), most);
  }
  [[nodiscard]] double mu_of(double t) {
    return o_["beta1"] * (1 - .5 * std::pow(.96, t * o_["schedule_decay"]));
  }
  void average(double& mean, double decay, double next) {
    mean = decay * mean + (1 - decay) * next;
  }

  void descend(double rate, double g, double& w, double& m) {
    m = o_["momentum"] * m - rate * g;
    w += m;
  }

  void element(double rescaled, double& w, double& a, double& b, double& c) {
    const double plain = clip(rescaled);
    const double g = plain + wd_ * w;
    const double b1 = o_["beta1"];
    const double b2 = o_["beta2"];
    const double eps = o_["epsilon"];
    const double bias1 = 1 - std::pow(b1, t_);
    const double bias2 = 1 - std::pow(b2, t_);
    const double l = lr_ * std::sqrt(bias2) / bias1;
    if (name_ == "sgd") return descend(lr_, g, w, a);
    if (name_ == "sgld") {
      w -= lr_ / 2 * g;
    } else if (name_ == "nag") {
      a = o_["momentum"] * a - lr_ * g;
      w += o_["momentum"] * a - lr_ * g;
    } else if (name_ == "signum") {
      a = o_["momentum"] * a - (1 - o_["momentum"]) * g;
      w = (1 - lr_ * o_["wd_lh"]) * w + lr_ * ((a > 0) - (a < 0));
    } else if (name_ == "dcasgd") {
      const double d = g + o_["lambda"] * g * g * (w - b);
      b = w;
      descend(lr_, d, w, a);
    } else if (name_ == "adagrad") {
      a += g * g;
      w -= lr_ * g / (std::sqrt(a) + eps);
    } else if (name_ == "adadelta") {
      average(a, o_["rho"], g * g);
      const double d = std::sqrt(b + eps) / std::sqrt(a + eps) * g;
      average(b, o_["rho"], d * d);
      w -= lr_ * d;
    } else if (name_ == "rmsprop") {
      average(a, o_["rho"], g * g);
      average(b, o_["rho"], g);
      if (o_["centered"] == 0) {
        w -= lr_ * g / (std::sqrt(a) + eps);
      } else {
        descend(lr_, g / std::sqrt(a - b * b + eps), w, c);
      }
    } else if (name_ == "ftrl") {
      const double more = std::sqrt(b + plain * plain) - std::sqrt(b);
      a += plain - more / lr_ * w;
      b += plain * plain;
      const double shrunk = std::max(std::abs(a) - o_["lambda1"], 0.0);
      w = -std::copysign(shrunk, a) / ((o_["beta"] + std::sqrt(b)) / lr_ + wd_);
    } else if (name_ == "adam" || name_ == "nadam" || name_ == "adamax") {
      average(a, b1, g);
      c = std::max(b2 * c, std::abs(g));
      average(b, b2, g * g);
      const double next = mu_of(t_ + 1);
      const double mix = (1 - mu_of(t_)) * g / (1 - product_) + next * a / (1 - product_ * next);
      if (name_ == "adam") w -= l * a / (std::sqrt(b) + eps);
      if (name_ == "adamax") w -= lr_ / bias1 * a / (c + eps);
      if (name_ == "nadam") w -= lr_ * mix / (std::sqrt(b / bias2) + eps);
    } else if (name_ == "adamw") {
      average(a, b1, plain);
      average(b, b2, plain * plain);
      w -= l * (a / (std::sqrt(b) + eps) + wd_ * w);
    } else if (name_ == "adabelief") {
      const double clipped = clip(rescaled + wd_ * w);
      average(a, b1, clipped);
      average(b, b2, (clipped - a) * (clipped - a));
      b += eps;
      w -= l * a / (std::sqrt(b) + eps);
    } else if (name_ == "ftml") {
      average(a, b2, g * g);
      const double d = bias1 / lr_ * (std::sqrt(a / bias2) + eps);
      average(b, b1, g);
      b -= (d - b1 * c) * w;
      c = d;
      w = -b / d;
    }
  }

  void lars(const Doubles& g, Doubles& w) {
    const double wn = norm_of(w);
    const double gn = norm_of(g);
    const double layer = wn > 0 && gn > 0 ? o_["eta"] * wn / (gn + wd_ * wn + o_["epsilon"]) : 1;
    for (std::size_t i = 0; i < w.size(); ++i) {
      descend(lr_ * layer, clip(g[i]) + wd_ * w[i], w[i], a_[i]);
    }
  }

  /// m^ / (sqrt(v^) + epsilon) + wd*w after the moments have taken g in; of g itself in `b`.
  void moments(const Doubles& g, const Doubles& w, Doubles& a, Doubles& b) {
    const bool corrected = name_ == "lans" || o_["bias_correction"] != 0;
    const double bias1 = corrected ? 1 - std::pow(o_["beta1"], t_) : 1;
    const double bias2 = corrected ? 1 - std::pow(o_["beta2"], t_) : 1;
    for (std::size_t i = 0; i < w.size(); ++i) {
      average(a_[i], o_["beta1"], g[i]);
      average(b_[i], o_["beta2"], g[i] * g[i]);
      const double spread = std::sqrt(b_[i] / bias2) + o_["epsilon"];
      a[i] = a_[i] / bias1 / spread + wd_ * w[i];
      b[i] = g[i] / spread + wd_ * w[i];
    }
  }

  void lamb(Doubles g, Doubles& w) {
    for (double& value : g) value = clip(value);
    Doubles u(w.size());
    Doubles unused(w.size());
    moments(g, w, u, unused);
    const double rate = lr_ * ratio(norm_of(w), norm_of(u));
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= rate * u[i];
  }

  void lans(Doubles g, Doubles& w) {
    const double norm = norm_of(g);
    for (double& value : g) value = norm == 0 ? 0 : clip(value / norm);
    Doubles a(w.size());
    Doubles b(w.size());
    moments(g, w, a, b);
    const double wn = norm_of(w);
    const double of_a = o_["beta1"] * ratio(wn, norm_of(a));
    const double of_b = (1 - o_["beta1"]) * ratio(wn, norm_of(b));
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= lr_ * (of_a * a[i] + of_b * b[i]);
  }

  std::string name_;
  Numbers o_;
  double lr_ = 0;
  double wd_ = 0;
  int t_ = 0;
  double product_ = 1;
  Doubles a_, b_, c_;
};

/// True if no element is further from `expected` than `tolerance`, relative above 1.
inline bool near(const tutti::ConstTensorView& found, const Doubles& expected, double tolerance) {
  const Doubles values = to_doubles(found);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::abs(values[i] - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i]))) {
      continue;
    }
    MESSAGE("element ", i, " of ", values.size(), ": expected ", expected[i], ", got ", values[i]);
    return false;
  }
  return true;
}

}  // namespace test
