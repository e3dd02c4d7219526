// SPDX-License-Identifier: Apache-2.0
// Makes an Optimizer that runs on a CPU from a rule (rule.hpp), and the rule's row in the
// catalogue.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "tutti/error.hpp"

#include "runtime/optimizers/catalogue.hpp"
#include "runtime/optimizers/option_fields.hpp"
#include "runtime/optimizers/rule.hpp"
#include "runtime/optimizers/update.hpp"

namespace tutti::optimizer {

template <class Options>
OptimizerOptions common_options(const Options& options) {
  return {.learning_rate = options.learning_rate,
          .weight_decay = options.weight_decay,
          .rescale_grad = options.rescale_grad,
          .clip_gradient = options.clip_gradient,
          .multi_precision = options.multi_precision,
          .schedule = options.schedule,
          .clip_global_norm = options.clip_global_norm,
          .loss_scale = options.loss_scale};
}

template <class Rule>
OptionFields all_fields(typename Rule::Options& options) {
  OptionFields fields = common_fields(options);
  for (const OptionField& field : Rule::fields(options)) fields.push_back(field);
  return fields;
}

template <class Rule>
class RuleOptimizer final : public Optimizer, public Follows<Rule> {
 public:
  using Options = typename Rule::Options;

  RuleOptimizer(const char* name, const Options& options)
      : Optimizer(name, common_options(options)), own_(options) {
    for (const OptionField& field : Rule::fields(own_)) {
      check_field("optimizer " + this->name(), field);
    }
    own_digest_ = digest_of(own_);
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
    now.learning_rate = defaults.learning_rate = learning_rate();  // the base class writes the rate
    return Optimizer::describe() + changes_text(all_fields<Rule>(now), all_fields<Rule>(defaults));
  }

 private:
  static Digest digest_of(Options options) {
    Digest digest;
    for (const OptionField& field : Rule::fields(options)) add(digest, field);
    return digest;
  }

  void assign_momentum(double momentum) override {
    Options changed = own_;
    for (const OptionField& field : Rule::fields(changed)) {
      const std::string_view option = field.name;
      if (option != "momentum" && option != "beta1") continue;
      *std::get<double*>(field.value) = momentum;
      check_field("optimizer " + this->name(), field);
      if (Rule::num_states(changed) != Rule::num_states(own_)) {
        throw Error(ErrorCode::invalid_argument,
                    "optimizer " + this->name() + ": set_momentum: a momentum that is 0 has no " +
                        "state; make the optimizer with one above 0, or leave it 0");
      }
      own_ = changed;
      own_digest_ = digest_of(own_);
      return;
    }
    Optimizer::assign_momentum(momentum);
  }

  Options own_;  ///< fields of the base class change there, and are read there
  Digest own_digest_;
};

template <class Rule>
std::shared_ptr<Optimizer> make(const char* name, const typename Rule::Options& options) {
  return std::make_shared<RuleOptimizer<Rule>>(name, options);
}

/// The rule's row in the catalogue.
template <class Rule>
Row row_of(const char* name) {
  using Options = typename Rule::Options;
  return {.name = name,
          .updates_rows = Rule::kUpdatesRows,
          .defaults =
              [] {
                Options options;
                OptionFields fields = {{"learning_rate", &options.learning_rate}};
                for (const OptionField& field : Rule::fields(options)) fields.push_back(field);
                return options_text(fields);
              },
          .make = [name](OptionWords& words) -> std::shared_ptr<Optimizer> {
            Options options;
            words.read(all_fields<Rule>(options));
            options.schedule = read_schedule(words);
            options.loss_scale = read_loss_scale(words);
            require_all_read(words);
            return make<Rule>(name, options);
          }};
}

}  // namespace tutti::optimizer
