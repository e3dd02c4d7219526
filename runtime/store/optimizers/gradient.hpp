// SPDX-License-Identifier: Apache-2.0
// What all optimizers do to a gradient first.
#pragma once

#include <algorithm>
#include <limits>

#include "tutti/optimizer.hpp"

namespace tutti::optimizer {

/// g' + wd*w with g' = clip(rescale*g). All arithmetic in Real; no fused multiply-add, so that the
/// bits do not depend on the machine. A NaN gradient stays NaN.
template <class Real>
class Gradient {
 public:
  Gradient(const OptimizerOptions& options, const UpdateStep& step)
      : rescale_(static_cast<Real>(options.rescale_grad)),
        limit_(options.clip_gradient ? static_cast<Real>(*options.clip_gradient)
                                     : std::numeric_limits<Real>::infinity()),
        decay_(static_cast<Real>(step.weight_decay)) {}

  Real operator()(Real gradient, Real weight) const {
    const Real scaled = rescale_ * gradient;
    const Real below = scaled > limit_ ? limit_ : scaled;
    const Real clipped = below < -limit_ ? -limit_ : below;
    return clipped + decay_ * weight;
  }

 private:
  Real rescale_;
  Real limit_;
  Real decay_;
};

}  // namespace tutti::optimizer
