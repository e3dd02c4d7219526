// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/adabelief.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Adabelief : Elementwise<AdabeliefRule> {
  static constexpr const char* kName = "adabelief";
  static Fields fields(Options& options) { return moment_fields(options); }
  static int num_states(const Options& /*options*/) { return 2; }
};

}  // namespace

std::shared_ptr<Optimizer> adabelief(const AdabeliefOptions& options) {
  return make<Adabelief>(options);
}

Row adabelief_row() { return row_of<Adabelief>(); }

}  // namespace tutti::optimizer
