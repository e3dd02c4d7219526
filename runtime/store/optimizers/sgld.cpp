// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/sgld.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Sgld : Elementwise<SgldRule> {
  static constexpr const char* kName = "sgld";
  static Fields fields(Options& options) { return {{"seed", &options.seed}}; }
  static int num_states(const Options& /*options*/) { return 0; }
};

}  // namespace

std::shared_ptr<Optimizer> sgld(const SgldOptions& options) { return make<Sgld>(options); }

Row sgld_row() { return row_of<Sgld>(); }

}  // namespace tutti::optimizer
