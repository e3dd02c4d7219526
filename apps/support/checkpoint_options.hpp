// SPDX-License-Identifier: Apache-2.0
// Where a training run saves itself, how often, and whether it goes on from there.
#pragma once

#include <boost/program_options.hpp>
#include <filesystem>
#include <string>

namespace apps {

struct CheckpointOptions {
  std::filesystem::path directory;  ///< empty: nothing is saved
  int every = 0;                    ///< steps; 0: at the end of each epoch
  std::string resume;               ///< auto, never or must

  [[nodiscard]] bool is_on() const { return !directory.empty(); }
};

void add_checkpoint_options(boost::program_options::options_description& all,
                            CheckpointOptions& options);

/// Errors  invalid_argument: values that mean nothing, or nothing without a directory.
void check(const CheckpointOptions& options);

}  // namespace apps
