// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/lans.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Lans : WholeTensor<LansRule> {
  static constexpr const char* kName = "lans";
  static Fields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 2; }
};

}  // namespace

std::shared_ptr<Optimizer> lans(const LansOptions& options) { return make<Lans>(options); }

Row lans_row() { return row_of<Lans>(); }

}  // namespace tutti::optimizer
