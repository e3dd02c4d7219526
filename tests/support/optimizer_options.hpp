// SPDX-License-Identifier: Apache-2.0
// Random options for every optimizer, as text for the library and as numbers for the reference.
#pragma once

#include <cstdio>
#include <doctest/doctest.h>
#include <random>
#include <string>

#include "tests/support/optimizer_reference.hpp"

namespace test {

inline std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const auto& [name, options] : reference_defaults()) names.push_back(name);
  return names;
}

inline std::string text_of(const std::string& name, const Numbers& options) {
  std::string text = name;
  for (const auto& [option, value] : options) {
    char word[64];
    std::snprintf(word, sizeof word, ",%s=%.17g", option.c_str(), value);
    text += word;
  }
  return text;
}

/// Random options of an optimizer, some of which stay at their defaults.
class RandomOptions {
 public:
  explicit RandomOptions(unsigned seed) : engine_(seed) {}

  Numbers of(const std::string& name) {
    Numbers options;
    for (const auto& [option, value] : reference_defaults().at(name)) {
      if (chance(0.75)) options[option] = value_of(option);
    }
    if (chance(0.5)) options["weight_decay"] = between(0, 0.3);
    if (chance(0.5)) options["rescale_grad"] = between(0.1, 1.5);
    if (chance(0.5)) options["clip_gradient"] = between(0.2, 3);
    return options;
  }

 private:
  double between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(engine_);
  }
  bool chance(double part) { return between(0, 1) < part; }

  double value_of(const std::string& option) {
    if (option == "learning_rate") return between(0.001, 0.1);
    if (option == "epsilon") return between(1e-4, 1e-2);
    if (option == "momentum") return chance(0.3) ? 0 : between(0.1, 0.95);
    if (option == "beta" || option == "eta") return between(0.1, 2);
    if (option == "beta2") return between(0.9, 0.999);
    for (const char* flag :
         {"centered", "bias_correction", "nesterov", "amsgrad", "decoupled_weight_decay"}) {
      if (option == flag) return chance(0.5) ? 1 : 0;
    }
    if (option == "seed") return std::floor(between(0, 1000));
    if (option == "lambda") return between(0.001, 0.05);  // its term grows with the cube of g
    return between(0.01, 0.9);  // beta1, rho, wd_lh, lambda1, schedule_decay
  }

  std::mt19937 engine_;
};

/// True if no element differs from `expected` by more than `tolerance`, which is relative above 1.
inline bool near(const tutti::ConstTensorView& found, const Doubles& expected, double tolerance) {
  const Doubles values = to_doubles(found);
  const std::size_t i = first_far(values, expected, tolerance);
  if (i == values.size()) return true;
  MESSAGE("element ", i, " of ", values.size(), ": expected ", expected[i], ", got ", values[i]);
  return false;
}

}  // namespace test
