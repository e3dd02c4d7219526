// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/adamw.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Adamw : Elementwise<AdamwRule> {
  static constexpr const char* kName = "adamw";
  static Fields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 2; }
};

}  // namespace

std::shared_ptr<Optimizer> adamw(const AdamwOptions& options) { return make<Adamw>(options); }

Row adamw_row() { return row_of<Adamw>(); }

}  // namespace tutti::optimizer
