// SPDX-License-Identifier: Apache-2.0
// The one loop over elements that all formulas run in, compiled for the vectors that every
// processor of the architecture has and, on x86-64, once more for AVX2. An element is computed by
// the same operations in the same order wherever it lies, so all variants and tails agree in every
// bit.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "runtime/store/optimizers/rules/formula.hpp"

namespace tutti::optimizer {

/// Where the elements of a loop are. `results` is written if the formula gives a result.
template <class Real>
struct LoopData {
  std::size_t first;
  const Real* gradient;
  Real* weight;
  Real* const* states;
  Real* results;
  std::size_t count;
};

// Local copies of all pointers, and a formula by value: nothing that is stored to can be one of
// them. `ivdep`: no tensor overlaps another.
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

}  // namespace tutti::optimizer
