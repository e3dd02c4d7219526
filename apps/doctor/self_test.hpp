// SPDX-License-Identifier: Apache-2.0
// A few seconds of collectives whose results are known exactly.
#pragma once

#include <cstdint>
#include <string>

#include <tutti/communicator.hpp>

namespace apps::doctor {

struct SelfTest {
  std::uint64_t calls = 0;
  std::uint64_t wrong = 0;  ///< wrong elements on all ranks
  double small_us = 0;      ///< p50 of an allreduce of 8 bytes, the longest over the ranks
  double large_busbw = 0;   ///< busbw of an allreduce of 16 MiB, in GB/s
};

/// The result as text: "720 collectives, 0 wrong elements; ...".
std::string to_string(const SelfTest& result);

/// Runs collectives for so many seconds. Order  collective. Errors: those of the communicator.
SelfTest run_self_test(tutti::Communicator& world, double seconds);

}  // namespace apps::doctor
