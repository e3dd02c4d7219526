// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/lamb.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Lamb : WholeTensor<LambRule> {
  static constexpr const char* kName = "lamb";
  static Fields fields(Options& options) {
    Fields fields = moment_fields(options);
    fields.push_back({"bias_correction", &options.bias_correction});
    return fields;
  }
  static int num_states(const Options& /*options*/) { return 2; }
};

}  // namespace

std::shared_ptr<Optimizer> lamb(const LambOptions& options) { return make<Lamb>(options); }

Row lamb_row() { return row_of<Lamb>(); }

}  // namespace tutti::optimizer
