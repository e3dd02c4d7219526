// SPDX-License-Identifier: Apache-2.0
// The command line of tutti-doctor.
#pragma once

#include <filesystem>
#include <string>

#include "apps/doctor/checks.hpp"

namespace apps::doctor {

struct Options {
  Plan plan;
  double seconds = 2;                 ///< length of the self-test; 0: no self-test
  std::filesystem::path mpi_program;  ///< a program that knows MPI alone; empty: none
  std::filesystem::path json;
  std::filesystem::path tune;  ///< the tuning file to write; empty: none
  double tune_seconds = 20;    ///< the time that measuring for it may take
  bool help = false;
  bool version = false;
};

/// Reads the command line. Errors: invalid_argument.
Options parse_options(int argc, const char* const* argv);
std::string help();

}  // namespace apps::doctor
