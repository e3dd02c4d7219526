// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/adagrad.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Adagrad : Elementwise<AdagradRule> {
  static constexpr const char* kName = "adagrad";
  static constexpr bool kUpdatesRows = true;
  static Fields fields(Options& options) { return {{"epsilon", &options.epsilon, &kPositive}}; }
  static int num_states(const Options& /*options*/) { return 1; }
};

}  // namespace

std::shared_ptr<Optimizer> adagrad(const AdagradOptions& options) { return make<Adagrad>(options); }

Row adagrad_row() { return row_of<Adagrad>(); }

}  // namespace tutti::optimizer
