// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/gradient_descent.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

/// Number `index` of the SplitMix64 generator with this seed (Steele, Lea, Flood, OOPSLA 2014): any
/// element can be drawn by itself, so the noise does not depend on how a tensor is cut.
[[gnu::always_inline]] TUTTI_ON_ANY inline std::uint64_t splitmix64(std::uint64_t seed,
                                                                    std::uint64_t index) {
  std::uint64_t mixed = seed + (index + 1) * 0x9E3779B97F4A7C15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
  return mixed ^ (mixed >> 31);
}

/// By Box and Muller, from two halves of one number: at most 6.7 from 0.
[[gnu::always_inline]] TUTTI_ON_ANY inline double normal(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t bits = splitmix64(seed, index);
  const double length = small_to_double((bits >> 32) + 1) * 0x1p-32;
  const double turn = small_to_double(bits & 0xFFFFFFFFu) * 0x1p-32;
  return std::sqrt(-2.0 * natural_log(length)) * cosine_of_turn(turn);
}

template <class Real>
struct SgldFormula {
  Gradient<Real> gradient;
  Real half_rate;
  double deviation;
  std::uint64_t stream;

  TUTTI_ON_ANY void operator()(Position position, Real g, Real& w) const {
    w -= half_rate * gradient.decayed(g, w);
    w += static_cast<Real>(deviation * normal(stream, position.index));
  }
};

struct SgldRule {
  using Options = SgldOptions;

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    const UpdateStep& step = update.step();
    update.each(SgldFormula<Real>{
        update.gradient(), static_cast<Real>(step.learning_rate / 2), std::sqrt(step.learning_rate),
        Digest().add(options.seed).add(step.key).add(step.count).value()});
  }
};

}  // namespace tutti::optimizer
