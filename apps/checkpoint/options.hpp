// SPDX-License-Identifier: Apache-2.0
// The command line of checkpoint-benchmark.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace apps::checkpoint {

struct Options {
  std::size_t bytes = 0;
  int keys = 0;
  int repeats = 0;
  std::filesystem::path directory;  ///< where the folder of the files is made
  bool help = false;
  bool version = false;
};

/// Errors  invalid_argument: a value that means nothing.
Options parse_options(int argc, const char* const* argv);

/// The text of --help.
std::string help();

}  // namespace apps::checkpoint
