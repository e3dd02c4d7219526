// SPDX-License-Identifier: Apache-2.0
#include "support/command_line.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include <tutti/error.hpp>

namespace po = boost::program_options;

namespace apps {
namespace {

/// The number of letters that must be put in, taken out or replaced to make `right` of `left`.
std::size_t edit_distance(const std::string& left, const std::string& right) {
  std::vector<std::size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < left.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < right.size(); ++j) {
      const std::size_t replaced = diagonal + (left[i] == right[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

/// The text ", did you mean --epochs?", or nothing where no option is near.
std::string nearest_option(const std::string& unknown, const po::options_description& options) {
  const std::string name = unknown.substr(std::min(unknown.find_first_not_of('-'), unknown.size()));
  std::size_t least = std::max(name.size() / 3, std::size_t{1}) + 1;
  std::string nearest;
  for (const auto& option : options.options()) {
    const std::size_t distance = edit_distance(name, option->long_name());
    if (distance >= least) continue;
    least = distance;
    nearest = ", did you mean --" + option->long_name() + "?";
  }
  return nearest;
}

}  // namespace

void add_rows(po::options_description& options, std::initializer_list<OptionRow> rows) {
  for (const OptionRow& row : rows) {
    if (row.value == nullptr) {
      options.add_options()(row.name, row.text);
    } else {
      options.add_options()(row.name, row.value, row.text);
    }
  }
}

void add_common_options(po::options_description& options) {
  add_rows(options, {
                        {"help", nullptr, "print this text and end"},
                        {"version", nullptr,
                         "print what the program was built with and what it found, and end"},
                    });
}

po::variables_map parse_command_line(int argc, const char* const* argv,
                                     const po::options_description& options) {
  try {
    po::variables_map values;
    po::store(
        po::command_line_parser(argc, argv)
            .options(options)
            .positional({})
            .style(po::command_line_style::unix_style ^ po::command_line_style::allow_guessing)
            .run(),
        values);
    po::notify(values);
    return values;
  } catch (const po::too_many_positional_options_error&) {
    throw_usage_error("expected options only, each starting with --");
  } catch (const po::unknown_option& error) {
    throw_usage_error(error.what() + nearest_option(error.get_option_name(), options));
  } catch (const po::error& error) {
    throw_usage_error(error.what());
  }
}

void throw_usage_error(const std::string& text) {
  throw tutti::Error(tutti::ErrorCode::invalid_argument, text + "; --help lists the options");
}

}  // namespace apps
