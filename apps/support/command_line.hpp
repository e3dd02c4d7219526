// SPDX-License-Identifier: Apache-2.0
// The common parts of the programs' command lines.
#pragma once

#include <boost/program_options.hpp>
#include <initializer_list>
#include <string>

namespace apps {

/// One option of a command line: "name" or "name,letter", the target of its value (null: it has
/// none), and its line of --help.
struct OptionRow {
  const char* name;
  const boost::program_options::value_semantic* value;
  const char* text;
};

/// Adds these options, in this order. Takes over the values of the rows.
void add_rows(boost::program_options::options_description& options,
              std::initializer_list<OptionRow> rows);

/// Adds --help and --version.
void add_common_options(boost::program_options::options_description& options);

/// Reads the command line: long options and their values, nothing else. Abbreviated names are
/// refused, because an option added later would change what they mean.
/// Errors  invalid_argument: an unknown option, with the nearest one that there is; a value that
/// cannot be read, a positional argument.
boost::program_options::variables_map parse_command_line(
    int argc, const char* const* argv, const boost::program_options::options_description& options);

/// Throws invalid_argument, as every check of an option does: "TEXT; --help lists the options".
[[noreturn]] void throw_usage_error(const std::string& text);

}  // namespace apps
