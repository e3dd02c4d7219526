// SPDX-License-Identifier: Apache-2.0
#include "runtime/optimizers/catalogue.hpp"

#include <algorithm>

#include "tutti/error.hpp"
#include "tutti/optimizers.hpp"

#include "runtime/optimizers/families.hpp"
#include "runtime/optimizers/option_fields.hpp"

namespace tutti::optimizer {

namespace {

template <class... Family>
std::vector<Row> rows_in(Families<Family...> /*families*/) {
  std::vector<Row> rows;
  (add_rows<Family>(rows), ...);
  std::ranges::sort(rows, {}, &Row::name);
  return rows;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows = rows_in(AllFamilies());
  return kRows;
}

std::vector<std::string> names_of_schedules() {
  std::vector<std::string> names;
  for (const Schedule& kind : kinds_of_schedule()) names.push_back(name_of(kind));
  return names;
}

bool is_option_of_a_schedule(const std::string& option) {
  for (Schedule kind : kinds_of_schedule()) {
    for (const OptionField& field : fields_of(kind)) {
      if (option == field.name) return true;
    }
  }
  return false;
}

}  // namespace

std::optional<Schedule> read_schedule(OptionWords& words) {
  const auto name = words.take("schedule");
  if (!name || *name == "none") return std::nullopt;
  for (Schedule schedule : kinds_of_schedule()) {
    if (name_of(schedule) != *name) continue;
    words.read(fields_of(schedule));
    return schedule;
  }
  words.throw_invalid_argument(unknown_name("schedule", *name, names_of_schedules()));
}

void require_all_read(const OptionWords& words) {
  const std::string* option = words.left_over();
  const bool has_schedule = words.knows("warmup_steps");
  if (option != nullptr && !has_schedule && is_option_of_a_schedule(*option)) {
    words.throw_invalid_argument("the option '" + *option +
                                 "' belongs to a schedule; add schedule=NAME, one of " +
                                 comma_list(names_of_schedules()));
  }
  words.require_all_read();
}

std::shared_ptr<Optimizer> create(std::string_view text, std::string_view defaults) {
  const std::string name(text.substr(0, text.find(',')));
  const auto row = std::ranges::find(rows(), name, &Row::name);
  if (row == rows().end()) {
    throw Error(ErrorCode::invalid_argument, unknown_name("optimizer", name, names()));
  }
  OptionWords words("optimizer " + name, text.substr(name.size()),
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
  return comma_list(some);
}

std::string help() {
  OptimizerOptions options;
  Schedule schedule;
  OptionFields common = common_fields(options);
  common.erase(common.begin());  // each optimizer has a learning rate of its own
  std::string text = "Optimizers, with the defaults of their options:\n";
  for (const Row& row : rows()) text += "  " + row.name + row.defaults() + "\n";
  text += "All of them:\n  " + options_text(common) + "\nSchedules:\n";
  for (Schedule kind : kinds_of_schedule()) {
    text += "  ,schedule=" + name_of(kind) + options_text(decay_fields(kind)) + "\n";
  }
  return text + "All of them:\n  " + options_text(warmup_fields(schedule)) + "\n";
}

}  // namespace tutti::optimizer
