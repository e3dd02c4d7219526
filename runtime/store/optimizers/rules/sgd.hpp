// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/optimizers/gradient_descent.hpp"

#include "runtime/store/optimizers/rules/descent.hpp"

namespace tutti::optimizer {

struct SgdRule {
  using Options = SgdOptions;

  template <class Update>
  static void apply(const Options& options, const Update& update) {
    using Real = typename Update::Real;
    if (options.momentum == 0) {
      update.each(Descent<Real>{update.gradient(), update.rate()});
    } else {
      update.each(DescentWithMomentum<Real>{update.gradient(), update.rate(),
                                            static_cast<Real>(options.momentum)});
    }
  }
};

}  // namespace tutti::optimizer
