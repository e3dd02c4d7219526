// SPDX-License-Identifier: Apache-2.0
// From a rule (rules/NAME.hpp), which is little more than its formula, to an Optimizer.
//
//   struct Sgd : Elementwise<SgdRule> {
//     static constexpr const char* kName = "sgd";
//     static Fields fields(Options& options);               // besides the common ones
//     static int num_states(const Options& options);
//   };
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "runtime/store/optimizers/catalogue.hpp"
#include "runtime/store/optimizers/fields.hpp"
#include "runtime/store/optimizers/rules/options_of.hpp"
#include "runtime/store/optimizers/update.hpp"

namespace tutti::optimizer {

template <class FormulaRule>
struct Elementwise : FormulaRule {
  using Formulas = FormulaRule;
  static constexpr bool kElementwise = true;
  static constexpr int kWeightState = -1;      ///< the state that starts as the weight
  static constexpr bool kUpdatesRows = false;  ///< of row-sparse keys, lazily
};
template <class FormulaRule>
struct WholeTensor : Elementwise<FormulaRule> {
  static constexpr bool kElementwise = false;
};

template <class Options>
OptimizerOptions common_options(const Options& options) {
  return {options.learning_rate, options.weight_decay,    options.rescale_grad,
          options.clip_gradient, options.multi_precision, options.schedule};
}

/// Of everything that is built on Adam's two moments.
template <class Options>
Fields moment_fields(Options& options) {
  return {{"beta1", &options.beta1, &kBelowOne},
          {"beta2", &options.beta2, &kBelowOne},
          {"epsilon", &options.epsilon, &kPositive}};
}

template <class Rule>
Fields all_fields(typename Rule::Options& options) {
  Fields fields = common_fields(options);
  for (const Field& field : Rule::fields(options)) fields.push_back(field);
  return fields;
}

template <class Rule>
class RuleOptimizer final : public Optimizer, public OptionsOf<typename Rule::Formulas> {
 public:
  using Options = typename Rule::Options;

  explicit RuleOptimizer(const Options& options)
      : Optimizer(Rule::kName, common_options(options)), own_(options) {
    for (const Field& field : Rule::fields(own_)) {
      check("optimizer " + name(), field);
      add(own_digest_, field);
    }
  }

  [[nodiscard]] const Options& own_options() const override { return own_; }
  [[nodiscard]] int num_states() const override { return Rule::num_states(own_); }
  [[nodiscard]] bool elementwise() const override { return Rule::kElementwise; }
  [[nodiscard]] bool updates_rows() const override { return Rule::kUpdatesRows; }
  [[nodiscard]] bool starts_as_weight(int state) const override {
    return state == Rule::kWeightState;
  }

  void update(const UpdateStep& step, const ElementRange<float>& range) const override {
    Rule::apply(own_, Update<float>(options(), step, range));
  }
  void update(const UpdateStep& step, const ElementRange<double>& range) const override {
    Rule::apply(own_, Update<double>(options(), step, range));
  }

  [[nodiscard]] std::uint64_t fingerprint() const override {
    return Digest(own_digest_).add(Optimizer::fingerprint()).value();
  }
  [[nodiscard]] std::string describe() const override {
    Options now = own_;
    Options defaults;
    now.learning_rate = defaults.learning_rate = learning_rate();  // the base class writes it
    return Optimizer::describe() +
           changes_to_string(all_fields<Rule>(now), all_fields<Rule>(defaults));
  }

 private:
  Options own_;  ///< the common ones among them are read from the base class, where they change
  Digest own_digest_;
};

template <class Rule>
std::shared_ptr<Optimizer> make(const typename Rule::Options& options) {
  return std::make_shared<RuleOptimizer<Rule>>(options);
}

/// The rule's row in the catalogue.
template <class Rule>
Row row_of() {
  using Options = typename Rule::Options;
  return {.name = Rule::kName,
          .updates_rows = Rule::kUpdatesRows,
          .defaults =
              [] {
                Options options;
                Fields fields = {{"learning_rate", &options.learning_rate}};
                for (const Field& field : Rule::fields(options)) fields.push_back(field);
                return to_string(fields);
              },
          .make = [](Words& words) -> std::shared_ptr<Optimizer> {
            Options options;
            words.read(all_fields<Rule>(options));
            options.schedule = words.read_schedule();
            words.require_all_read();
            return make<Rule>(options);
          }};
}

}  // namespace tutti::optimizer
