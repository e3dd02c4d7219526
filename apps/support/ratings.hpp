// SPDX-License-Identifier: Apache-2.0
// Ratings that users give to items, made up.
#pragma once

#include <cstdint>
#include <vector>

#include "support/factor_options.hpp"

namespace apps {

struct Rating {
  std::int32_t user;
  std::int32_t item;
  float value;
};

struct Ratings {
  std::vector<Rating> train;
  std::vector<Rating> test;
};

/// The standard deviation of what no factors explain. The ratings' own is about 1.
inline constexpr double kNoise = 0.1;

/// The same on every rank: a function of the options alone.
Ratings make_ratings(const FactorOptions& options);

}  // namespace apps
