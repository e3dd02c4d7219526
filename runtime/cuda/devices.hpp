// SPDX-License-Identifier: Apache-2.0
// The GPUs that this process can use.
#pragma once

#include <string>

namespace tutti::cuda {

struct Devices {
  int count = 0;
  std::string why_none;  ///< if there are none: CUDA's own words
};

/// Asks the driver for the GPUs. A machine without a driver, or without a GPU, is an answer and no
/// error.
Devices find_devices();

}  // namespace tutti::cuda
