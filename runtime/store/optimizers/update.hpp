// SPDX-License-Identifier: Apache-2.0
// What the formulas are written in: one update of one range of a key, or of the whole key.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "tutti/optimizers.hpp"

#include "runtime/store/optimizers/loops.hpp"
#include "runtime/store/optimizers/rules/numbers.hpp"

namespace tutti::optimizer {

template <class Element>
class Update : public UpdateNumbers<Element> {
 public:
  using Real = Element;

  Update(const OptimizerOptions& options, const UpdateStep& step, const ElementRange<Real>& range)
      : UpdateNumbers<Real>(options, step), range_(range) {}

  /// Calls the formula for every element.
  template <class Formula>
  void each(const Formula& formula) const {
    run_loop(data(0, range_.weight.size(), nullptr), resolved(formula, Norms{norms_.data()}));
  }

  /// Takes the Euclidean norm of what the formula gives. Element i is added to sum i % kLanes, in
  /// double, and the sums in pairs: one order for all processors.
  template <class Formula>
  void norm(const Formula& prologue) const {
    const auto formula = resolved(prologue, Norms{norms_.data()});
    constexpr std::size_t kLanes = 16;
    constexpr std::size_t kTile = 32 * kLanes;
    std::array<double, kLanes> sums{};
    std::array<Real, kTile> values;
    for (std::size_t begin = 0; begin < range_.weight.size(); begin += kTile) {
      const std::size_t count = std::min(kTile, range_.weight.size() - begin);
      run_loop(data(begin, count, values.data()), formula);
      std::fill(values.begin() + count, values.end(), Real{0});
      for (std::size_t i = 0; i < kTile; i += kLanes) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
          const double value = values[i + lane];
          sums[lane] += value * value;
        }
      }
    }
    for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
      for (std::size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
    }
    norms_[num_norms_++] = std::sqrt(sums[0]);
  }

 private:
  [[nodiscard]] LoopData<Real> data(std::size_t begin, std::size_t count, Real* results) const {
    for (std::size_t s = 0; s < range_.states.size(); ++s) states_[s] = range_.states[s] + begin;
    return {range_.first + begin,
            range_.gradient.data() + begin,
            range_.weight.data() + begin,
            states_.data(),
            results,
            count};
  }

  const ElementRange<Real>& range_;
  mutable std::array<Real*, Optimizer::kMostStates> states_{};  ///< of the loop that runs
  mutable std::array<double, Norms::kMost> norms_{};
  mutable std::size_t num_norms_ = 0;
};

}  // namespace tutti::optimizer
