// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/nadam.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Nadam : Elementwise<NadamRule> {
  static constexpr const char* kName = "nadam";
  static Fields fields(Options& options) {
    Fields fields = moment_fields(options);
    fields.push_back({"schedule_decay", &options.schedule_decay, &kNotNegative});
    return fields;
  }
  static int num_states(const Options& /*options*/) { return 2; }
};

}  // namespace

std::shared_ptr<Optimizer> nadam(const NadamOptions& options) { return make<Nadam>(options); }

Row nadam_row() { return row_of<Nadam>(); }

}  // namespace tutti::optimizer
