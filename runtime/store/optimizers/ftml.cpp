// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/ftml.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Ftml : Elementwise<FtmlRule> {
  static constexpr const char* kName = "ftml";
  static Fields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 3; }
};

}  // namespace

std::shared_ptr<Optimizer> ftml(const FtmlOptions& options) { return make<Ftml>(options); }

Row ftml_row() { return row_of<Ftml>(); }

}  // namespace tutti::optimizer
