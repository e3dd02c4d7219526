// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/adam.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Adam : Elementwise<AdamRule> {
  static constexpr const char* kName = "adam";
  static constexpr bool kUpdatesRows = true;
  static Fields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 2; }
};

}  // namespace

std::shared_ptr<Optimizer> adam(const AdamOptions& options) { return make<Adam>(options); }

Row adam_row() { return row_of<Adam>(); }

}  // namespace tutti::optimizer
