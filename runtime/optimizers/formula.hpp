// SPDX-License-Identifier: Apache-2.0
// Formulas, and the parts that they are written with: the gradient's preparation, moving averages,
// rates. A formula is an object that a loop on a processor or a GPU calls for every element:
//
//   template <class Real>
//   struct Descent {  // It holds numbers alone, so that its bytes can be copied to a GPU.
//     Gradient<Real> gradient;
//     Real rate;
//     TUTTI_HOST_DEVICE void operator()(Real g, Real& w) const {
//       w -= rate * gradient.decayed(g, w);
//     }
//   };
//
// Its parameters are g, w and the states; it may leave out the last states. A reference is read and
// written, a Real only read, NotRead neither. A Position may come first. It returns nothing, or the
// value whose norm norm() takes.
//
// A formula that depends on norms is given as a prologue: called with the norms that the update has
// taken so far, in their order, it returns the formula. On a GPU they are known when the kernel
// runs.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>

#include "tutti/optimizer.hpp"

#include "runtime/base/on_any.hpp"
#include "runtime/base/portable_math.hpp"

namespace tutti::optimizer {

/// The index of an element in its tensor.
struct Position {
  std::size_t index;
};

/// A parameter that the formula does not read.
struct NotRead {
  template <class Real>
  TUTTI_HOST_DEVICE NotRead(Real /*value*/) {}  // NOLINT: stands for any value
};

/// The norms that an update has taken, at most kMost.
struct Norms {
  static constexpr int kMost = 4;
  const double* values;
  TUTTI_HOST_DEVICE double operator[](int index) const { return values[index]; }
};

/// The use of one parameter by a formula.
template <class Parameter>
struct Use {
  static constexpr bool kWritten = std::is_lvalue_reference_v<Parameter>;
  static constexpr bool kRead = !std::is_same_v<Parameter, NotRead>;
};

/// The uses of all parameters, as a formula's operator() declares them: 0 is g, 1 is w, then the
/// states.
template <bool kPosition, class Result, class... Parameters>
struct Uses {
  static constexpr bool kTakesPosition = kPosition;
  static constexpr bool kGivesValue = !std::is_void_v<Result>;
  static constexpr int kTensors = sizeof...(Parameters);
  static constexpr int kStates = kTensors - 2;
  static constexpr int kNumRead = (0 + ... + static_cast<int>(Use<Parameters>::kRead));
  static constexpr bool kRead[kTensors] = {Use<Parameters>::kRead...};
  static constexpr bool kWritten[kTensors] = {Use<Parameters>::kWritten...};
};

template <class Formula, class Result, class... Parameters>
Uses<false, Result, Parameters...> uses_of(Result (Formula::*)(Parameters...) const);
template <class Formula, class Result, class... Parameters>
Uses<true, Result, Parameters...> uses_of(Result (Formula::*)(Position, Parameters...) const);

template <class Formula>
using UsesOf = decltype(uses_of<Formula>(&Formula::operator()));

template <class Formula>
inline constexpr bool kIsPrologue = std::is_invocable_v<const Formula&, Norms>;

/// The formula itself, or the formula that a prologue makes from the norms.
template <class Formula>
TUTTI_HOST_DEVICE auto resolved(const Formula& formula, [[maybe_unused]] const Norms& norms) {
  if constexpr (kIsPrologue<Formula>) {
    return formula(norms);
  } else {
    return formula;
  }
}

template <class Formula>
using Resolved = decltype(resolved(std::declval<const Formula&>(), std::declval<const Norms&>()));

/// The preparation of a gradient by all optimizers. All arithmetic is in Real, without fused
/// multiply-add, so that the bits do not depend on the machine. A NaN gradient stays NaN.
template <class Real>
class Gradient {
 public:
  Gradient(const OptimizerOptions& options, const UpdateStep& step)
      : rescale_(static_cast<Real>(options.rescale_grad * step.gradient_factor)),
        limit_(options.clip_gradient ? static_cast<Real>(*options.clip_gradient)
                                     : std::numeric_limits<Real>::infinity()),
        decay_(static_cast<Real>(step.weight_decay)) {}

  [[nodiscard]] TUTTI_HOST_DEVICE Real rescaled(Real g) const { return rescale_ * g; }
  [[nodiscard]] TUTTI_HOST_DEVICE Real clip(Real value) const {
    const Real below = value > limit_ ? limit_ : value;
    return below < -limit_ ? -limit_ : below;
  }
  /// The prepared gradient g'.
  [[nodiscard]] TUTTI_HOST_DEVICE Real plain(Real g) const { return clip(rescaled(g)); }
  /// The weight decay wd*w.
  [[nodiscard]] TUTTI_HOST_DEVICE Real decay(Real w) const { return decay_ * w; }
  /// The gradient with weight decay, g' + wd*w.
  [[nodiscard]] TUTTI_HOST_DEVICE Real decayed(Real g, Real w) const { return plain(g) + decay(w); }

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
  [[nodiscard]] TUTTI_HOST_DEVICE Real operator()(Real mean, Real next) const {
    return keep_ * mean + take_ * next;
  }

 private:
  Real keep_;
  Real take_;
};

/// The numbers that formulas are made of: the common part of an Update of any machine, which adds
/// each(formula) and norm(formula).
template <class Element>
class UpdateNumbers {
 public:
  using Real = Element;

  UpdateNumbers(const OptimizerOptions& options, const UpdateStep& step)
      : options_(options), step_(step) {}

  [[nodiscard]] const UpdateStep& step() const { return step_; }
  [[nodiscard]] Gradient<Real> gradient() const { return {options_, step_}; }
  [[nodiscard]] Real rate() const { return static_cast<Real>(step_.learning_rate); }
  /// 1 - decay^t: the weight of the values that a moving average has taken in so far.
  [[nodiscard]] double taken(double decay) const { return 1 - power(decay, step_.count); }

  /// Adam's rate: lr*sqrt(1 - beta2^t)/(1 - beta1^t).
  [[nodiscard]] Real corrected_rate(double beta1, double beta2) const {
    return static_cast<Real>(step_.learning_rate * std::sqrt(taken(beta2)) / taken(beta1));
  }

 private:
  const OptimizerOptions& options_;
  const UpdateStep& step_;
};

/// Adam's two averages, and the epsilon that keeps a quotient by a root finite.
template <class Real>
struct Moments {
  Average<Real> first;
  Average<Real> second;
  Real epsilon;
};

template <class Real, class Options>
Moments<Real> moments_of(const Options& options) {
  return {Average<Real>(options.beta1), Average<Real>(options.beta2),
          static_cast<Real>(options.epsilon)};
}

/// The weight itself, for norms.
template <class Real>
struct WeightItself {
  TUTTI_HOST_DEVICE Real operator()(NotRead /*g*/, Real w) const { return w; }
};

template <class Real>
struct RescaledGradient {
  Gradient<Real> gradient;
  TUTTI_HOST_DEVICE Real operator()(Real g, NotRead /*w*/) const { return gradient.rescaled(g); }
};

/// A formula that changes nothing, for steps at which the real one cannot be computed.
template <class Real>
struct Unchanged {
  TUTTI_HOST_DEVICE void operator()(Real /*g*/, NotRead /*w*/) const {}
};

/// The quotient of two norms; 1 if either is 0.
TUTTI_HOST_DEVICE inline double norm_ratio(double numerator, double denominator) {
  return numerator == 0 || denominator == 0 ? 1.0 : numerator / denominator;
}

}  // namespace tutti::optimizer
