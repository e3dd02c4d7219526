// SPDX-License-Identifier: Apache-2.0
// Rules: a rule is all that the library knows of one optimizer, on CPUs and GPUs alike.
//
//   struct Sgd : Elementwise<SgdOptions> {             // or WholeTensor, if it takes norms
//     static OptionFields fields(Options& options);    // besides those that all optimizers have
//     static int num_states(const Options& options);
//     template <class Update>
//     static void apply(const Options& options, const Update& update);
//   };
//
// apply() calls update.each(formula), and update.norm(formula) before it for each norm that the
// formula depends on. The Update is that of update.hpp on a CPU and one that plans kernels for a
// GPU.
#pragma once

#include "tutti/optimizer.hpp"

#include "runtime/base/fields.hpp"
#include "runtime/optimizers/formula.hpp"

namespace tutti::optimizer {

/// A rule whose element i depends on the elements i of the gradient and of the states alone.
template <class OwnOptions>
struct Elementwise {
  using Options = OwnOptions;
  static constexpr bool kElementwise = true;
  static constexpr int kWeightState = -1;       ///< the state that starts as the weight; -1: none
  static constexpr bool kUpdatesRows = false;   ///< Optimizer::updates_rows()
  static constexpr bool kDependsOnKey = false;  ///< apply() reads UpdateStep::key
};

/// A rule that needs norms of whole tensors.
template <class OwnOptions>
struct WholeTensor : Elementwise<OwnOptions> {
  static constexpr bool kElementwise = false;
};

/// The fields of an optimizer that is built on Adam's two moments.
template <class Options>
OptionFields moment_fields(Options& options) {
  return {{"beta1", &options.beta1, &bounds::kBelowOne},
          {"beta2", &options.beta2, &bounds::kBelowOne},
          {"epsilon", &options.epsilon, &bounds::kPositive}};
}

/// The second base class of an Optimizer that follows one of this library's rules, by which a GPU
/// finds out which rule it is.
class FollowsRule {
 public:
  virtual ~FollowsRule() = default;
  [[nodiscard]] virtual bool depends_on_key() const = 0;
};

template <class Rule>
class Follows : public FollowsRule {
 public:
  [[nodiscard]] virtual const typename Rule::Options& own_options() const = 0;
  [[nodiscard]] bool depends_on_key() const final { return Rule::kDependsOnKey; }
};

/// The options of an optimizer that follows this rule; null for any other.
template <class Rule>
const typename Rule::Options* options_for(const Optimizer& optimizer) {
  const auto* found = dynamic_cast<const Follows<Rule>*>(&optimizer);
  return found == nullptr ? nullptr : &found->own_options();
}

/// True if the formulas of an update depend on its key.
inline bool depends_on_key(const Optimizer& optimizer) {
  const auto* found = dynamic_cast<const FollowsRule*>(&optimizer);
  return found != nullptr && found->depends_on_key();
}

/// A rule with its name, as each() of a family passes it on.
template <class RuleType>
struct Named {
  using Rule = RuleType;
  const char* name;
};

/// Calls visit(Named<RULE>{"NAME"}); for the list at the end of each family's header.
#define TUTTI_VISIT_RULE(NAME, RULE) visit(Named<RULE>{#NAME});

}  // namespace tutti::optimizer
