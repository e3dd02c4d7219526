// SPDX-License-Identifier: Apache-2.0
// What a formula is: an object that a loop, of a processor or of a GPU, calls for every element.
//
//   template <class Real>
//   struct Descent {                      // numbers alone, so that its bytes can be copied to a
//   GPU
//     Gradient<Real> gradient;
//     Real rate;
//     TUTTI_ON_ANY void operator()(Real g, Real& w) const { w -= rate * gradient.decayed(g, w); }
//   };
//
// Its parameters are g, w and the states, of which it may leave out the last ones. A reference is
// read and written, a Real only read, NotRead neither. A Position may come first. It returns
// nothing, or what norm() takes the norm of.
//
// A formula that depends on norms is given as a prologue: called with those that the update has
// taken so far, in their order, it returns the formula. A GPU has them when the kernel runs.
#pragma once

#include <cstddef>
#include <type_traits>

#include "runtime/base/on_any.hpp"

namespace tutti::optimizer {

/// The index of an element in its tensor.
struct Position {
  std::size_t index;
};

/// A parameter that the formula does not look at.
struct NotRead {
  template <class Real>
  TUTTI_ON_ANY NotRead(Real /*value*/) {}  // NOLINT: stands for any value
};

/// The norms that an update has taken, at most kMost.
struct Norms {
  static constexpr int kMost = 4;
  const double* values;
  TUTTI_ON_ANY double operator[](int index) const { return values[index]; }
};

/// One parameter of a formula.
template <class Parameter>
struct Use {
  static constexpr bool kWritten = std::is_lvalue_reference_v<Parameter>;
  static constexpr bool kRead = !std::is_same_v<Parameter, NotRead>;
};

/// What a formula's operator() says of its parameters: 0 is g, 1 is w, then the states.
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

/// The formula itself, or what a prologue makes of the norms.
template <class Formula>
TUTTI_ON_ANY auto resolved(const Formula& formula, [[maybe_unused]] const Norms& norms) {
  if constexpr (kIsPrologue<Formula>) {
    return formula(norms);
  } else {
    return formula;
  }
}

template <class Formula>
using Resolved = decltype(resolved(std::declval<const Formula&>(), std::declval<const Norms&>()));

}  // namespace tutti::optimizer
