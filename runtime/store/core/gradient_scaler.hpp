// SPDX-License-Identifier: Apache-2.0
// Scaling of a push's gradients by clip_global_norm and loss_scale: one factor for all of them.
//
// The sums are whole before the first update, so that their norm is known. It is the same on all
// ranks, as the sums are, so every rank concludes from it without a message whether to skip the
// push, or by which factor to multiply the gradients.
//
//   norm   = |rescale_grad| / scale * sqrt(sum of the squares of all elements of all keys)
//   factor = 1 / scale * min(1, clip_global_norm / (norm + 1e-6))
//
// The squares of a key are added in the order of optimizers/squares.hpp, and the keys in the order
// of their updates. So the norm has the bits of the sums' elements: those of any run, chunk size,
// fusion, number of threads and device, and of any layout for which the sums have.
//
// Cost: the sums of all keys are written to memory and read again by the update, as for optimizers
// that take norms; and once more for the squares, which is from the cache where they fit into it.
// On a GPU the squares are one launch that reads the sums, and the host waits for 8 bytes a key.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tutti/optimizer.hpp"
#include "tutti/scaling.hpp"

#include "collectives/node/call.hpp"
#include "runtime/job/group.hpp"

namespace tutti {

struct Entry;

class GradientScaler {
 public:
  /// A scaler with the options of an optimizer that needs() one; the optimizer must outlive it.
  explicit GradientScaler(const Optimizer& optimizer) : optimizer_(optimizer) { reset(); }

  [[nodiscard]] static bool needs(const OptimizerOptions& options) {
    return options.clip_global_norm || options.loss_scale;
  }

  /// Takes the squares of a push's sums, over all keys, and moves the scale. Returns the factor of
  /// the gradients besides rescale_grad; none if the push is to be skipped.
  [[nodiscard]] std::optional<double> take(double squares);

  /// Takes the squares likewise; a skipped push is logged and counted in the statistics. `entries`
  /// are the keys of the push.
  [[nodiscard]] std::optional<double> take(double squares, Group& group,
                                           std::span<Entry* const> entries);

  [[nodiscard]] const GradientScaling& state() const { return state_; }
  /// Takes over the state of a file. A scale that is not dynamic stays that of this optimizer.
  void restore(const GradientScaling& state);
  /// Starts the scale and its counters anew, as set_optimizer() does.
  void reset();
  /// A digest that is equal on ranks whose next push gets the same factor from the same sums.
  [[nodiscard]] std::uint64_t fingerprint() const;

 private:
  const Optimizer& optimizer_;
  GradientScaling state_;
};

/// The sum of the squares of one key's sum, computed by all threads.
[[nodiscard]] double squares_of(const collectives::Segment& sum, collectives::Workers& workers);

/// The text of an error that refuses a push with a scaler: "clip_global_norm and loss_scale are
/// ...".
[[nodiscard]] std::string scaler_refusal(const std::string& why);

}  // namespace tutti
