// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "apps/doctor/checks.hpp"

namespace apps::doctor {

struct Options {
  Plan plan;
  double seconds = 2;  ///< of the self-test; 0: none
  std::filesystem::path json;
  bool help = false;
  bool version = false;
};

/// Errors: invalid_argument.
Options parse_options(int argc, const char* const* argv);
std::string help();

}  // namespace apps::doctor
