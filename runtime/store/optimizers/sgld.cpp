// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

/// Number `index` of the SplitMix64 generator with this seed (Steele, Lea, Flood, OOPSLA 2014): any
/// element can be drawn by itself, so the noise does not depend on how a tensor is cut.
[[gnu::always_inline]] inline std::uint64_t splitmix64(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t mixed = seed + (index + 1) * 0x9E3779B97F4A7C15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
  return mixed ^ (mixed >> 31);
}

/// By Box and Muller, from two halves of one number: at most 6.7 from 0.
[[gnu::always_inline]] inline double normal(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t bits = splitmix64(seed, index);
  const double length = small_to_double((bits >> 32) + 1) * 0x1p-32;
  const double turn = small_to_double(bits & 0xFFFFFFFFu) * 0x1p-32;
  return std::sqrt(-2.0 * natural_log(length)) * cosine_of_turn(turn);
}

struct Sgld : ElementwiseRule {
  using Options = SgldOptions;
  static constexpr const char* kName = "sgld";
  static Fields fields(Options& options) { return {{"seed", &options.seed}}; }
  static int num_states(const Options& /*options*/) { return 0; }

  template <class Real>
  static void apply(const Options& options, const Update<Real>& update) {
    const auto gradient = update.gradient();
    const auto half_rate = static_cast<Real>(update.step().learning_rate / 2);
    const double deviation = std::sqrt(update.step().learning_rate);
    const std::uint64_t stream =
        Digest().add(options.seed).add(update.step().key).add(update.step().count).value();
    update.each([=](Position position, Real g, Real& w) {
      w -= half_rate * gradient.decayed(g, w);
      w += static_cast<Real>(deviation * normal(stream, position.index));
    });
  }
};

}  // namespace

std::shared_ptr<Optimizer> sgld(const SgldOptions& options) { return make<Sgld>(options); }

Row sgld_row() { return row_of<Sgld>(); }

}  // namespace tutti::optimizer
