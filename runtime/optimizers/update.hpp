// SPDX-License-Identifier: Apache-2.0
// One update of a key's elements on a CPU: the loop in which all formulas run, and the norms. The
// loop is compiled for the vectors that every processor of the architecture has and, on x86-64,
// once more for AVX2. An element is computed by the same operations in the same order wherever it
// lies, so all variants and tails agree in every bit.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

#include "runtime/optimizers/formula.hpp"

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"  // some formulas stay scalar, with the same bits
#endif

namespace tutti::optimizer {

/// The elements of a loop. `results` is written if the formula returns a result.
template <class Real>
struct LoopData {
  std::size_t first;
  const Real* gradient;
  Real* weight;
  Real* const* states;
  Real* results;
  std::size_t count;
};

// Pointers are copied to local variables, and the formula is a copy, so that nothing that is stored
// to can be one of them. `ivdep`: no tensor overlaps another.
template <class Real, class Formula, std::size_t... S>
[[gnu::always_inline]] inline void run_inline(const LoopData<Real>& data, Formula formula,
                                              std::index_sequence<S...> /*states*/) {
  const Real* const g = data.gradient;
  Real* const w = data.weight;
  [[maybe_unused]] const std::array<Real*, sizeof...(S)> s{data.states[S]...};
  Real* const results = data.results;
  [[maybe_unused]] const std::size_t first = data.first;
  const std::size_t count = data.count;
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (UsesOf<Formula>::kTakesPosition) {
      formula(Position{first + i}, g[i], w[i], s[S][i]...);
    } else if constexpr (UsesOf<Formula>::kGivesValue) {
      results[i] = formula(g[i], w[i], s[S][i]...);
    } else {
      formula(g[i], w[i], s[S][i]...);
    }
  }
}

// `flatten` inlines the formula, wherever it was compiled for.
template <class Real, class Formula, class States>
[[gnu::flatten, gnu::noinline]] void run_plain(const LoopData<Real>& data, Formula formula,
                                               States states) {
  run_inline(data, formula, states);
}

#if defined(__x86_64__)
template <class Real, class Formula, class States>
[[gnu::target("avx2"), gnu::flatten, gnu::noinline]] void run_avx2(const LoopData<Real>& data,
                                                                   Formula formula, States states) {
  run_inline(data, formula, states);
}
#endif

template <class Real, class Formula>
void run_loop(const LoopData<Real>& data, Formula formula) {
  const auto states = std::make_index_sequence<UsesOf<Formula>::kStates>();
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return run_avx2(data, formula, states);
#endif
  run_plain(data, formula, states);
}

/// An update of one range of a key, or of the whole key, that a rule is applied to.
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

  /// Takes the Euclidean norm of the formula's results. Element i is added to sum i % kLanes, in
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
  mutable std::array<Real*, Optimizer::kMostStates> states_{};  ///< states of the present loop
  mutable std::array<double, Norms::kMost> norms_{};
  mutable std::size_t num_norms_ = 0;
};

}  // namespace tutti::optimizer
