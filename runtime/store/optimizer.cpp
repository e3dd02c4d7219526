// SPDX-License-Identifier: Apache-2.0
#include "tutti/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "tutti/error.hpp"

#include "runtime/digest.hpp"

namespace tutti {

namespace {

void require(bool holds, const char* what, double got) {
  if (holds) return;
  throw Error(ErrorCode::invalid_argument,
              std::string("optimizer: ") + what + ", got " + std::to_string(got));
}

double factor_of(const std::unordered_map<Key, double>& factors, const Key& key) {
  const auto found = factors.find(key);
  return found == factors.end() ? 1.0 : found->second;
}

void add_factors(Digest& digest, const std::unordered_map<Key, double>& factors) {
  for (const auto& [key, factor] : std::map(factors.begin(), factors.end())) {
    digest.add(key).add(factor);
  }
}

}  // namespace

Optimizer::Optimizer(OptimizerOptions options) : options_(options) {
  set_learning_rate(options.learning_rate);
  require(std::isfinite(options.weight_decay) && options.weight_decay >= 0,
          "expected weight_decay of at least 0", options.weight_decay);
  require(std::isfinite(options.rescale_grad), "expected a finite rescale_grad",
          options.rescale_grad);
  if (options.clip_gradient) {
    require(*options.clip_gradient > 0, "expected clip_gradient above 0", *options.clip_gradient);
  }
}

void Optimizer::set_learning_rate(double learning_rate) {
  require(std::isfinite(learning_rate) && learning_rate >= 0,
          "expected learning_rate of at least 0", learning_rate);
  options_.learning_rate = learning_rate;
}

UpdateStep Optimizer::step(const Key& key, std::uint64_t count) const {
  return {count, options_.learning_rate * factor_of(lr_mult_, key),
          options_.weight_decay * factor_of(wd_mult_, key)};
}

std::uint64_t Optimizer::fingerprint() const {
  Digest digest;
  digest.add(std::string_view(name()))
      .add(options_.learning_rate)
      .add(options_.weight_decay)
      .add(options_.rescale_grad)
      .add(options_.clip_gradient.value_or(0.0));
  add_factors(digest, lr_mult_);
  add_factors(digest, wd_mult_);
  return digest.value();
}

}  // namespace tutti
