// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/dcasgd.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Dcasgd : Elementwise<DcasgdRule> {
  static constexpr const char* kName = "dcasgd";
  static constexpr int kWeightState = 0;
  static Fields fields(Options& options) {
    return {{"momentum", &options.momentum, &kBelowOne},
            {"lambda", &options.lambda, &kNotNegative}};
  }
  static int num_states(const Options& options) { return options.momentum == 0 ? 1 : 2; }
};

}  // namespace

std::shared_ptr<Optimizer> dcasgd(const DcasgdOptions& options) { return make<Dcasgd>(options); }

Row dcasgd_row() { return row_of<Dcasgd>(); }

}  // namespace tutti::optimizer
