// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/nag.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Nag : Elementwise<NagRule> {
  static constexpr const char* kName = "nag";
  static Fields fields(Options& options) { return {{"momentum", &options.momentum, &kBelowOne}}; }
  static int num_states(const Options& /*options*/) { return 1; }
};

}  // namespace

std::shared_ptr<Optimizer> nag(const NagOptions& options) { return make<Nag>(options); }

Row nag_row() { return row_of<Nag>(); }

}  // namespace tutti::optimizer
