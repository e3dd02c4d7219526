// SPDX-License-Identifier: Apache-2.0
#include "support/command_line.hpp"

#include <tutti/error.hpp>

namespace po = boost::program_options;

namespace apps {

void add_common_options(po::options_description& options) {
  options.add_options()("help", "print this text and end")(
      "version", "print what the program was built with and what it found, and end");
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
    throw_bad_option("expected options only, each starting with --");
  } catch (const po::error& error) {
    throw_bad_option(error.what());
  }
}

void throw_bad_option(const std::string& text) {
  throw tutti::Error(tutti::ErrorCode::invalid_argument, text + "; --help lists the options");
}

}  // namespace apps
