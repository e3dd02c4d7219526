// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/core/gradient_scaler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "collectives/text/numbers.hpp"
#include "runtime/base/digest.hpp"
#include "runtime/optimizers/squares.hpp"
#include "runtime/store/core/call_totals.hpp"
#include "runtime/store/core/key_table.hpp"

namespace tutti {

namespace {

constexpr double kEpsilon = 1e-6;  // that of torch.nn.utils.clip_grad_norm_

/// The nearest scale that is normal in float32, in which the program multiplies by it.
double kept_normal(double scale) {
  using Limits = std::numeric_limits<float>;
  return std::clamp(scale, double{Limits::min()}, double{Limits::max()});
}

std::string number(double value) { return significant(value, 9); }

}  // namespace

void GradientScaler::reset() {
  const auto& scale = optimizer_.options().loss_scale;
  state_ = {.loss_scale = scale ? scale->init_scale : 1};
}

void GradientScaler::restore(const GradientScaling& state) {
  reset();
  const auto& scale = optimizer_.options().loss_scale;
  const double own = state_.loss_scale;
  state_ = state;
  if (!scale || !scale->is_dynamic) state_.loss_scale = own;
}

std::optional<double> GradientScaler::take(double squares) {
  const OptimizerOptions& options = optimizer_.options();
  const double scale = state_.loss_scale;
  const LossScale* const dynamic =
      options.loss_scale && options.loss_scale->is_dynamic ? &*options.loss_scale : nullptr;
  state_.norm = std::abs(options.rescale_grad) / scale * std::sqrt(squares);
  state_.was_skipped = !std::isfinite(squares);
  if (state_.was_skipped) {
    ++state_.skipped;
    state_.good_pushes = 0;
    if (dynamic != nullptr) state_.loss_scale = kept_normal(scale * dynamic->backoff_factor);
    return std::nullopt;
  }
  ++state_.good_pushes;
  if (dynamic != nullptr && state_.good_pushes >= dynamic->growth_interval) {
    state_.loss_scale = kept_normal(scale * dynamic->growth_factor);
    state_.good_pushes = 0;
  }
  if (!options.clip_global_norm) return 1 / scale;
  return 1 / scale * std::min(1.0, *options.clip_global_norm / (state_.norm + kEpsilon));
}

/// Skipped pushes are expected, and rare, with a dynamic scale; without one they are a fault of the
/// training, which makes no progress meanwhile.
std::optional<double> GradientScaler::take(double squares, Group& group,
                                           std::span<Entry* const> entries) {
  const double before = state_.loss_scale;
  const std::optional<double> factor = take(squares);
  if (factor) return factor;
  ++totals_of(group.engine().statistics(), "skipped_push", std::span<Entry* const>()).calls;
  const auto& scale = optimizer_.options().loss_scale;
  const bool is_dynamic = scale && scale->is_dynamic;
  const LogLevel level = is_dynamic ? LogLevel::info : LogLevel::warning;
  if (group.topology().rank != 0 || !group.log().writes(level)) return factor;
  group.log().write(level, call_to_string("push", entries) +
                               ": the sum of the gradients is not finite; " +
                               "nothing was updated" +
                               (is_dynamic ? ", and the loss scale goes from " + number(before) +
                                                 " to " + number(state_.loss_scale)
                                           : std::string()) +
                               "; pushes skipped so far: " + std::to_string(state_.skipped));
  return factor;
}

std::uint64_t GradientScaler::fingerprint() const {
  return Digest().add(state_.loss_scale).add(state_.good_pushes).add(state_.skipped).value();
}

double squares_of(const collectives::Segment& sum, collectives::Workers& workers) {
  static_assert(optimizer::kSquaresTileBytes % collectives::Workers::kCutBytes == 0);
  const std::size_t size = size_of(sum.dtype);
  const std::size_t each = optimizer::kSquaresTileBytes / size;
  std::vector<double> tiles(optimizer::squares_tiles(sum.dtype, sum.count));
  workers.over(sum.count, size, [&](std::size_t first, std::size_t count) {
    optimizer::add_squares(
        sum.dtype, sum.output + first * size, count,
        std::span(tiles).subspan(first / each, optimizer::squares_tiles(sum.dtype, count)));
  });
  return optimizer::total_squares(tiles);
}

std::string scaler_refusal(const std::string& why) {
  return "the optimizer's options clip_global_norm and loss_scale are " + why;
}

}  // namespace tutti
