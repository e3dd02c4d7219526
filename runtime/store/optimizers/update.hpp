// SPDX-License-Identifier: Apache-2.0
// What the formulas are written in: one update of one range of a key, or of the whole key.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tutti/optimizers.hpp"

#include "runtime/portable_math.hpp"
#include "runtime/store/optimizers/loops.hpp"

namespace tutti::optimizer {

/// What all optimizers do to a gradient first. All arithmetic in Real, without fused multiply-add,
/// so that the bits do not depend on the machine. A NaN gradient stays NaN.
template <class Real>
class Gradient {
 public:
  Gradient(const OptimizerOptions& options, const UpdateStep& step)
      : rescale_(static_cast<Real>(options.rescale_grad)),
        limit_(options.clip_gradient ? static_cast<Real>(*options.clip_gradient)
                                     : std::numeric_limits<Real>::infinity()),
        decay_(static_cast<Real>(step.weight_decay)) {}

  [[nodiscard]] Real rescaled(Real g) const { return rescale_ * g; }
  [[nodiscard]] Real clip(Real value) const {
    const Real below = value > limit_ ? limit_ : value;
    return below < -limit_ ? -limit_ : below;
  }
  /// g'
  [[nodiscard]] Real plain(Real g) const { return clip(rescaled(g)); }
  /// wd*w
  [[nodiscard]] Real decay(Real w) const { return decay_ * w; }
  /// g' + wd*w
  [[nodiscard]] Real decayed(Real g, Real w) const { return plain(g) + decay(w); }

 private:
  Real rescale_;
  Real limit_;
  Real decay_;
};

/// The moving average b*mean + (1-b)*next.
template <class Real>
class Average {
 public:
  explicit Average(double decay)
      : keep_(static_cast<Real>(decay)), take_(static_cast<Real>(1 - decay)) {}
  [[nodiscard]] Real operator()(Real mean, Real next) const { return keep_ * mean + take_ * next; }

 private:
  Real keep_;
  Real take_;
};

template <class Real>
class Update {
 public:
  Update(const OptimizerOptions& options, const UpdateStep& step, const ElementRange<Real>& range)
      : options_(options), step_(step), range_(range) {}

  [[nodiscard]] const UpdateStep& step() const { return step_; }
  [[nodiscard]] Gradient<Real> gradient() const { return {options_, step_}; }
  [[nodiscard]] Real rate() const { return static_cast<Real>(step_.learning_rate); }
  /// 1 - decay^t: what a moving average has taken in so far.
  [[nodiscard]] double taken(double decay) const { return 1 - power(decay, step_.count); }

  /// Adam's rate: lr*sqrt(1 - beta2^t)/(1 - beta1^t).
  [[nodiscard]] Real corrected_rate(double beta1, double beta2) const {
    return static_cast<Real>(step_.learning_rate * std::sqrt(taken(beta2)) / taken(beta1));
  }

  /// formula(Real g, Real& w, Real& state...) or formula(Position, Real g, Real& w) for every
  /// element.
  template <class Formula>
  void each(Formula formula) const {
    run_loop(data(0, range_.weight.size(), nullptr), formula);
  }

  /// The Euclidean norm of what formula(Real g, Real& w, Real& state...) returns. Element i is
  /// added to sum i % kLanes, in double, and the sums in pairs: one order for all machines.
  template <class Formula>
  [[nodiscard]] double norm(Formula formula) const {
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
    return std::sqrt(sums[0]);
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

  const OptimizerOptions& options_;
  const UpdateStep& step_;
  const ElementRange<Real>& range_;
  mutable std::array<Real*, Optimizer::kMostStates> states_{};  ///< of the loop that runs
};

/// m = momentum*m - rate*gd; w += m. Without momentum also without m.
template <class Real>
void descend(const Update<Real>& update, Real rate, double decay) {
  const auto gradient = update.gradient();
  const auto momentum = static_cast<Real>(decay);
  if (decay == 0) {
    update.each([=](Real g, Real& w) { w -= rate * gradient.decayed(g, w); });
    return;
  }
  update.each([=](Real g, Real& w, Real& m) {
    m = momentum * m - rate * gradient.decayed(g, w);
    w += m;
  });
}

/// 1 if either norm is 0.
inline double norm_ratio(double numerator, double denominator) {
  return numerator == 0 || denominator == 0 ? 1.0 : numerator / denominator;
}

}  // namespace tutti::optimizer
