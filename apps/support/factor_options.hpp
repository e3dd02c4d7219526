// SPDX-License-Identifier: Apache-2.0
// The command line of matrix-factorisation.
#pragma once

#include <cstdint>
#include <string>

namespace apps {

struct FactorOptions {
  int users = 0;
  int items = 0;
  int factors = 0;
  int ratings = 0;  ///< to train on; a tenth as many to test
  int epochs = 0;
  int batch_size = 0;     ///< ratings per step over all ranks
  std::string optimizer;  ///< as tutti::optimizer::create takes it; one that updates rows
  std::int64_t seed = 0;
  bool help = false;
  bool version = false;
};

/// Errors  invalid_argument: any value that a job of `ranks` ranks cannot use.
FactorOptions parse_factor_options(int argc, const char* const* argv, int ranks);

/// What the job is about to do, in a line.
std::string job_line(const FactorOptions& options, int ranks);

/// The text of --help.
std::string factor_help();

}  // namespace apps
