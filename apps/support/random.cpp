// SPDX-License-Identifier: Apache-2.0
#include "support/random.hpp"

#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

namespace apps {
namespace {

// A stream of random numbers. Streams of one seed and different indices differ, because next() maps
// no two states to one number. Two seeds share some streams: that of seed 1 and index 2 is that of
// seed 2 and index 1. Runs that are to be independent of each other take seeds that are no numbers
// of epochs.
Random stream(std::uint64_t seed, std::uint64_t index) {
  Random seeds(seed);
  return Random(seeds.next() ^ Random(index).next());
}

// The streams below are those of epochs.
constexpr std::uint64_t kWeightStreams = std::uint64_t{1} << 32;

}  // namespace

std::uint64_t Random::next() noexcept {
  state_ += 0x9E3779B97F4A7C15U;
  std::uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
  return mixed ^ (mixed >> 31);
}

std::uint32_t Random::below(std::uint32_t bound) noexcept {
  return static_cast<std::uint32_t>(((next() >> 32) * bound) >> 32);
}

double Random::uniform() noexcept { return static_cast<double>((next() >> 11) + 1) * 0x1p-53; }

void shuffle_epoch(std::uint64_t seed, int epoch, std::vector<std::uint32_t>& order) {
  std::iota(order.begin(), order.end(), 0U);
  Random random = stream(seed, static_cast<std::uint64_t>(epoch));
  for (auto left = static_cast<std::uint32_t>(order.size()); left > 1; --left) {
    std::swap(order[left - 1], order[random.below(left)]);
  }
}

void fill_he_normal(std::uint64_t seed, int layer, int inputs, std::span<float> weight) {
  Random random = stream(seed, kWeightStreams + static_cast<std::uint64_t>(layer));
  const double deviation = std::sqrt(2.0 / inputs);
  for (float& value : weight) {
    const double radius = std::sqrt(-2.0 * std::log(random.uniform()));
    const double angle = 2.0 * std::numbers::pi * random.uniform();
    value = static_cast<float>(deviation * radius * std::cos(angle));
  }
}

}  // namespace apps
