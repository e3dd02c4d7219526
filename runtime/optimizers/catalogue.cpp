// SPDX-License-Identifier: Apache-2.0
#include "runtime/optimizers/catalogue.hpp"

#include <algorithm>
#include <charconv>

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

bool is_option_of_a_dynamic_scale(const std::string& option) {
  LossScale scale;
  return std::ranges::any_of(dynamic_fields(scale),
                             [&](const OptionField& field) { return option == field.name; });
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

}  // namespace tutti::optimizer

namespace tutti::schedule {

std::optional<Schedule> create(std::string_view text) {
  const std::string name(text.substr(0, text.find(',')));
  OptionWords words("schedule " + name, text.substr(name.size()), "");
  std::optional<Schedule> created;
  for (const Schedule& kind : optimizer::kinds_of_schedule()) {
    if (name_of(kind) != name) continue;
    created = kind;
    words.read(optimizer::fields_of(*created));
  }
  if (!created && name != "none") {
    std::vector<std::string> names = optimizer::names_of_schedules();
    names.emplace_back("none");
    throw Error(ErrorCode::invalid_argument, unknown_name("schedule", name, names));
  }
  words.require_all_read();
  return created;
}

}  // namespace tutti::schedule

namespace tutti::optimizer {

std::optional<LossScale> read_loss_scale(OptionWords& words) {
  const auto text = words.take("loss_scale");
  if (!text || *text == "none") return std::nullopt;
  LossScale scale;
  scale.is_dynamic = *text == "dynamic";
  if (scale.is_dynamic) {
    words.read(dynamic_fields(scale));
    return scale;
  }
  const char* const end = text->data() + text->size();
  const auto [read, error] = std::from_chars(text->data(), end, scale.init_scale);
  if (error == std::errc{} && read == end && bounds::kNormal.hold(scale.init_scale)) return scale;
  words.throw_invalid_argument("loss_scale=" + *text + ": expected dynamic, none or " +
                               bounds::kNormal.text);
}

void require_all_read(const OptionWords& words) {
  const std::string* option = words.left_over();
  if (option != nullptr && !words.knows("init_scale") && is_option_of_a_dynamic_scale(*option)) {
    words.throw_invalid_argument("the option '" + *option + "' belongs to a dynamic loss scale; " +
                                 "add loss_scale=dynamic");
  }
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
  common.erase(common.begin());  // each optimizer has a default of its own for the learning rate
  std::string text = "Optimizers, with the defaults of their options:\n";
  for (const Row& row : rows()) text += "  " + row.name + row.defaults() + "\n";
  LossScale scale;
  text += "All of them:\n  " + options_text(common) + ",loss_scale=none\n  ,loss_scale=dynamic" +
          options_text(dynamic_fields(scale)) + "\nSchedules:\n";
  for (Schedule kind : kinds_of_schedule()) {
    text += "  ,schedule=" + name_of(kind) + options_text(decay_fields(kind)) + "\n";
  }
  return text + "All of them:\n  " + options_text(warmup_fields(schedule)) + "\n";
}

}  // namespace tutti::optimizer
