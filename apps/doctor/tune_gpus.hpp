// SPDX-License-Identifier: Apache-2.0
// --tuning on a node with GPUs: up to which size kernels that read the GPUs of all ranks sum faster
// than NCCL.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <tutti/communicator.hpp>

namespace apps::doctor {

/// A size of sums, and how long one took, in microseconds: the median of the slowest rank's.
struct GpuSum {
  std::size_t bytes = 0;
  double peers_us = 0;
  double nccl_us = 0;
};

struct GpuTuning {
  std::string row;   ///< of a tuning file, with its end of line; empty if nothing was measured
  std::string line;  ///< for the user; empty without GPUs
};

/// The largest size up to which all sums by kernels were faster, and not by chance; 0 for none.
std::size_t peers_limit(const std::vector<GpuSum>& sums);

/// Measures sums of up to `most_bytes` with communicators of its own, of these settings and the
/// ranks of `world`, which are on one node. Order  collective. Errors: communication, timeout.
GpuTuning tune_gpus(tutti::Communicator& world, tutti::Settings settings,
                    std::size_t most_bytes = std::size_t{16} << 20);

}  // namespace apps::doctor
