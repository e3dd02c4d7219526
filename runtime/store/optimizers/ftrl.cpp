// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/ftrl.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Ftrl : Elementwise<FtrlRule> {
  static constexpr const char* kName = "ftrl";
  static Fields fields(Options& options) {
    return {{"lambda1", &options.lambda1, &kNotNegative}, {"beta", &options.beta, &kPositive}};
  }
  static int num_states(const Options& /*options*/) { return 2; }
};

}  // namespace

std::shared_ptr<Optimizer> ftrl(const FtrlOptions& options) { return make<Ftrl>(options); }

Row ftrl_row() { return row_of<Ftrl>(); }

}  // namespace tutti::optimizer
