// SPDX-License-Identifier: Apache-2.0
// The optimizers by name, and the words of "name,option=value,..." that they are made from.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/store/optimizers/fields.hpp"

namespace tutti::optimizer {

/// The options of a text, as they are taken one by one.
class Words {
 public:
  /// Both texts are ",option=value,..." or empty; `options` come before `defaults`.
  /// Errors  invalid_argument: a part that is not option=value, or an option given twice.
  Words(std::string owner, std::string_view options, std::string_view defaults);

  /// Sets the fields that words name. Errors: invalid_argument for a value that cannot be read.
  void read(const Fields& fields);
  /// What schedule=NAME and the schedule's options ask for.
  std::optional<Schedule> read_schedule();
  /// Errors  invalid_argument: a word that nobody took, with the nearest and all known options.
  void require_all_read() const;

 private:
  using Map = std::map<std::string, std::string, std::less<>>;
  [[nodiscard]] Map split(std::string_view text) const;
  std::optional<std::string> take(const std::string& option);
  [[noreturn]] void throw_invalid_argument(const std::string& why) const;

  std::string owner_;
  Map words_;
  std::vector<std::string> known_;
};

/// "unknown WHAT 'NAME', did you mean NEAREST? There are: ..."
std::string unknown(const std::string& what, const std::string& name,
                    const std::vector<std::string>& known);

/// "adagrad, adam, sgd": those that update row-sparse keys.
std::string names_that_update_rows();

struct Row {
  std::string name;
  bool updates_rows;                      ///< Optimizer::updates_rows()
  std::function<std::string()> defaults;  ///< of the options that are not common to all
  std::function<std::shared_ptr<Optimizer>(Words& words)> make;
};

// Each is in the optimizer's own file.
Row adabelief_row();
Row adadelta_row();
Row adagrad_row();
Row adam_row();
Row adamax_row();
Row adamw_row();
Row dcasgd_row();
Row ftml_row();
Row ftrl_row();
Row lamb_row();
Row lans_row();
Row lars_row();
Row nadam_row();
Row nag_row();
Row rmsprop_row();
Row sgd_row();
Row sgld_row();
Row signum_row();

}  // namespace tutti::optimizer
