// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/lars.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Lars : WholeTensor<LarsRule> {
  static constexpr const char* kName = "lars";
  static Fields fields(Options& options) {
    return {{"momentum", &options.momentum, &kBelowOne},
            {"eta", &options.eta, &kPositive},
            {"epsilon", &options.epsilon, &kPositive}};
  }
  static int num_states(const Options& options) { return options.momentum == 0 ? 0 : 1; }
};

}  // namespace

std::shared_ptr<Optimizer> lars(const LarsOptions& options) { return make<Lars>(options); }

Row lars_row() { return row_of<Lars>(); }

}  // namespace tutti::optimizer
