// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/optimizers/catalogue.hpp"

#include <algorithm>

#include "tutti/error.hpp"
#include "tutti/optimizers.hpp"

#include "runtime/nearest_name.hpp"

namespace tutti::optimizer {

namespace {

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows = {
      adabelief_row(), adadelta_row(), adagrad_row(), adam_row(), adamax_row(), adamw_row(),
      dcasgd_row(),    ftml_row(),     ftrl_row(),    lamb_row(), lans_row(),   lars_row(),
      nadam_row(),     nag_row(),      rmsprop_row(), sgd_row(),  sgld_row(),   signum_row()};
  return kRows;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::vector<std::string> names_of_schedules() {
  std::vector<std::string> names;
  for (const Schedule& kind : kinds_of_schedule()) names.push_back(name_of(kind));
  return names;
}

bool is_option_of_a_schedule(const std::string& option) {
  for (Schedule kind : kinds_of_schedule()) {
    for (const Field& field : fields_of(kind)) {
      if (option == field.name) return true;
    }
  }
  return false;
}

}  // namespace

std::string unknown(const std::string& what, const std::string& name,
                    const std::vector<std::string>& known) {
  return "unknown " + what + " '" + name + "', did you mean " + nearest_name(name, known) +
         "? There are: " + joined(known);
}

Words::Words(std::string owner, std::string_view options, std::string_view defaults)
    : owner_(std::move(owner)), words_(split(options)) {
  words_.merge(split(defaults));  // of two, the first stays
}

void Words::throw_invalid_argument(const std::string& why) const {
  throw Error(ErrorCode::invalid_argument, owner_ + ": " + why);
}

/// Of ",option=value,option=value".
Words::Map Words::split(std::string_view text) const {
  Map words;
  while (!text.empty()) {
    text.remove_prefix(1);
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string word(text.substr(0, comma));
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw_invalid_argument("expected option=value between commas, found '" + word + "'");
    }
    if (!words.emplace(word.substr(0, equals), word.substr(equals + 1)).second) {
      throw_invalid_argument("the option '" + word.substr(0, equals) + "' is given twice");
    }
    text.remove_prefix(comma);
  }
  return words;
}

std::optional<std::string> Words::take(const std::string& option) {
  known_.push_back(option);
  const auto word = words_.extract(option);
  if (word.empty()) return std::nullopt;
  return word.mapped();
}

void Words::read(const Fields& fields) {
  for (const Field& field : fields) {
    if (const auto value = take(field.name)) optimizer::read(owner_, field, *value);
  }
}

std::optional<Schedule> Words::read_schedule() {
  const auto name = take("schedule");
  if (!name || *name == "none") return std::nullopt;
  for (Schedule schedule : kinds_of_schedule()) {
    if (name_of(schedule) != *name) continue;
    read(fields_of(schedule));
    return schedule;
  }
  throw_invalid_argument(unknown("schedule", *name, names_of_schedules()));
}

void Words::require_all_read() const {
  if (words_.empty()) return;
  const std::string& option = words_.begin()->first;
  const auto knows = [&](const char* name) {
    return std::ranges::find(known_, name) != known_.end();
  };
  if (knows("schedule") && !knows("warmup_steps") && is_option_of_a_schedule(option)) {
    throw_invalid_argument("the option '" + option +
                           "' belongs to a schedule; add schedule=NAME, one of " +
                           joined(names_of_schedules()));
  }
  throw_invalid_argument(unknown("option", option, known_));
}

std::shared_ptr<Optimizer> create(std::string_view text, std::string_view defaults) {
  const std::string name(text.substr(0, text.find(',')));
  const auto row = std::ranges::find(rows(), name, &Row::name);
  if (row == rows().end()) {
    throw Error(ErrorCode::invalid_argument, unknown("optimizer", name, names()));
  }
  Words words("optimizer " + name, text.substr(name.size()),
              defaults.empty() ? "" : "," + std::string(defaults));
  return row->make(words);
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Row& row : rows()) all.push_back(row.name);
  return all;
}

std::string names_that_update_rows() {
  std::vector<std::string> some;
  for (const Row& row : rows()) {
    if (row.updates_rows) some.push_back(row.name);
  }
  return joined(some);
}

std::string help() {
  OptimizerOptions options;
  Schedule schedule;
  Fields common = common_fields(options);
  common.erase(common.begin());  // each optimizer has a learning rate of its own
  std::string text = "Optimizers, with the defaults of their options:\n";
  for (const Row& row : rows()) text += "  " + row.name + row.defaults() + "\n";
  text += "All of them:\n  " + to_string(common) + "\nSchedules:\n";
  for (Schedule kind : kinds_of_schedule()) {
    text += "  ,schedule=" + name_of(kind) + to_string(decay_fields(kind)) + "\n";
  }
  return text + "All of them:\n  " + to_string(warmup_fields(schedule)) + "\n";
}

}  // namespace tutti::optimizer
