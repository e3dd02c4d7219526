// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/rules/adadelta.hpp"

#include "runtime/store/optimizers/formula.hpp"

namespace tutti::optimizer {

namespace {

struct Adadelta : Elementwise<AdadeltaRule> {
  static constexpr const char* kName = "adadelta";
  static Fields fields(Options& options) {
    return {{"rho", &options.rho, &kBelowOne}, {"epsilon", &options.epsilon, &kPositive}};
  }
  static int num_states(const Options& /*options*/) { return 2; }
};

}  // namespace

std::shared_ptr<Optimizer> adadelta(const AdadeltaOptions& options) {
  return make<Adadelta>(options);
}

Row adadelta_row() { return row_of<Adadelta>(); }

}  // namespace tutti::optimizer
