// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/adamax.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Adamax : Elementwise<AdamaxRule> {
  static constexpr const char* kName = "adamax";
  static Fields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 2; }
};

}  // namespace

std::shared_ptr<Optimizer> adamax(const AdamaxOptions& options) { return make<Adamax>(options); }

Row adamax_row() { return row_of<Adamax>(); }

}  // namespace tutti::optimizer
