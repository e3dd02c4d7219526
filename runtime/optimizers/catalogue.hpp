// SPDX-License-Identifier: Apache-2.0
// The catalogue: optimizers by name, as they are made from "name,option=value,...".
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/optimizer.hpp"

#include "runtime/base/fields.hpp"

namespace tutti::optimizer {

struct Row {
  std::string name;
  bool updates_rows;                      ///< Optimizer::updates_rows()
  std::function<std::string()> defaults;  ///< ",name=value" for each of its own options
  std::function<std::shared_ptr<Optimizer>(OptionWords& words)> make;
};

/// Adds the rows of a family of families.hpp.
template <class Family>
void add_rows(std::vector<Row>& rows);

/// The schedule that schedule=NAME and its options ask for.
std::optional<Schedule> read_schedule(OptionWords& words);
/// The loss scale that loss_scale=dynamic, with its options, or loss_scale=NUMBER asks for.
std::optional<LossScale> read_loss_scale(OptionWords& words);
/// Errors  invalid_argument: an option that was not taken, with the nearest and all known options.
void require_all_read(const OptionWords& words);

/// The names of the optimizers that update row-sparse keys: "adagrad, adam, sgd".
std::string names_that_update_rows();

}  // namespace tutti::optimizer
