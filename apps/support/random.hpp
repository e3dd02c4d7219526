// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same with every standard library: std::shuffle and the distributions
// of <random> are not, and ranks may be built differently.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace apps {

/// A generator of random numbers, SplitMix64. Source: Steele, Lea, Flood, OOPSLA 2014.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() noexcept;
  /// A random number, uniform in [0, bound); bound > 0.
  std::uint32_t below(std::uint32_t bound) noexcept;
  /// A random number, uniform in (0, 1].
  double uniform() noexcept;

 private:
  std::uint64_t state_;
};

/// Puts 0 .. count-1 into the order of one epoch, which depends on the seed and the epoch alone, so
/// that any number of ranks visits the images in the same order.
void shuffle_epoch(std::uint64_t seed, int epoch, std::vector<std::uint32_t>& order);

/// Fills weights by He initialisation: normal with variance 2 / inputs. `layer` gives each layer
/// values of its own.
void fill_he_normal(std::uint64_t seed, int layer, int inputs, std::span<float> weight);

}  // namespace apps
