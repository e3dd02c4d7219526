// SPDX-License-Identifier: Apache-2.0
#include "support/ratings.hpp"

#include <cmath>

#include "support/random.hpp"

namespace apps {
namespace {

/// Uniform, with mean 0 and this standard deviation.
double uniform(Random& random, double deviation) {
  return (2.0 * random.uniform() - 1.0) * std::sqrt(3.0) * deviation;
}

/// Factors whose products of `factors` terms have a standard deviation of 1.
std::vector<float> make_factors(Random& random, int rows, int factors) {
  std::vector<float> values(static_cast<std::size_t>(rows) * static_cast<std::size_t>(factors));
  const double deviation = std::pow(factors, -0.25);
  for (float& value : values) value = static_cast<float>(uniform(random, deviation));
  return values;
}

}  // namespace

Ratings make_ratings(const FactorOptions& options) {
  Random random(static_cast<std::uint64_t>(options.seed));
  const std::vector<float> users = make_factors(random, options.users, options.factors);
  const std::vector<float> items = make_factors(random, options.items, options.factors);
  const auto factors = static_cast<std::size_t>(options.factors);
  const auto make = [&](std::size_t count) {
    std::vector<Rating> ratings(count);
    for (Rating& rating : ratings) {
      rating.user = static_cast<int>(random.below(static_cast<std::uint32_t>(options.users)));
      rating.item = static_cast<int>(random.below(static_cast<std::uint32_t>(options.items)));
      const float* user = users.data() + static_cast<std::size_t>(rating.user) * factors;
      const float* item = items.data() + static_cast<std::size_t>(rating.item) * factors;
      double value = uniform(random, kNoise);
      for (std::size_t i = 0; i < factors; ++i) value += static_cast<double>(user[i] * item[i]);
      rating.value = static_cast<float>(value);
    }
    return ratings;
  };
  Ratings ratings;
  ratings.train = make(static_cast<std::size_t>(options.ratings));
  ratings.test = make(static_cast<std::size_t>(options.ratings) / 10 + 1);
  return ratings;
}

}  // namespace apps
