// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/signum.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Signum : Elementwise<SignumRule> {
  static constexpr const char* kName = "signum";
  static Fields fields(Options& options) {
    return {{"momentum", &options.momentum, &kBelowOne}, {"wd_lh", &options.wd_lh, &kNotNegative}};
  }
  static int num_states(const Options& options) { return options.momentum == 0 ? 0 : 1; }
};

}  // namespace

std::shared_ptr<Optimizer> signum(const SignumOptions& options) { return make<Signum>(options); }

Row signum_row() { return row_of<Signum>(); }

}  // namespace tutti::optimizer
