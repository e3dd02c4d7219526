// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/rmsprop.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Rmsprop : Elementwise<RmspropRule> {
  static constexpr const char* kName = "rmsprop";
  static Fields fields(Options& options) {
    return {{"rho", &options.rho, &kBelowOne},
            {"momentum", &options.momentum, &kBelowOne},
            {"epsilon", &options.epsilon, &kPositive},
            {"centered", &options.centered}};
  }
  static int num_states(const Options& options) { return options.centered ? 3 : 1; }
};

}  // namespace

std::shared_ptr<Optimizer> rmsprop(const RmspropOptions& options) { return make<Rmsprop>(options); }

Row rmsprop_row() { return row_of<Rmsprop>(); }

}  // namespace tutti::optimizer
