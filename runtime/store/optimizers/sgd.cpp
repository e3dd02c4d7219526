// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/sgd.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Sgd : Elementwise<SgdRule> {
  static constexpr const char* kName = "sgd";
  static constexpr bool kUpdatesRows = true;
  static Fields fields(Options& options) { return {{"momentum", &options.momentum, &kBelowOne}}; }
  static int num_states(const Options& options) { return options.momentum == 0 ? 0 : 1; }
};

}  // namespace

std::shared_ptr<Optimizer> sgd(const SgdOptions& options) { return make<Sgd>(options); }

Row sgd_row() { return row_of<Sgd>(); }

}  // namespace tutti::optimizer
