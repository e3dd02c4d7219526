// SPDX-License-Identifier: Apache-2.0
// The one loop over elements that all formulas run in, compiled for the vectors that every
// processor of the architecture has and, on x86-64, once more for AVX2. An element is computed by
// the same operations in the same order wherever it lies, so all variants and tails agree in every
// bit.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace tutti::optimizer {

/// The index of an element in its tensor, for formulas that ask for it.
struct Position {
  std::size_t index;
};

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
    if constexpr (std::is_invocable_v<Formula, Position, Real, Real&>) {
      formula(Position{first + i}, g[i], w[i]);
    } else if constexpr (std::is_void_v<decltype(formula(g[i], w[i], s[S][i]...))>) {
      formula(g[i], w[i], s[S][i]...);
    } else {
      results[i] = formula(g[i], w[i], s[S][i]...);
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

/// How many states a formula takes: it is called as formula(Real g, Real& w, Real& state...), or as
/// formula(Position, Real g, Real& w).
template <class Real, class Formula, class... States>
constexpr std::size_t states_of() {
  if constexpr (std::is_invocable_v<Formula, Position, Real, Real&>) {
    return 0;
  } else if constexpr (std::is_invocable_v<Formula, Real, Real&, States...>) {
    return sizeof...(States);
  } else {
    static_assert(sizeof...(States) < 4, "not a formula of g, w and states");
    return states_of<Real, Formula, States..., Real&>();
  }
}

template <class Real, class Formula>
void run_loop(const LoopData<Real>& data, Formula formula) {
  const auto states = std::make_index_sequence<states_of<Real, Formula>()>();
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return run_avx2(data, formula, states);
#endif
  run_plain(data, formula, states);
}

}  // namespace tutti::optimizer
