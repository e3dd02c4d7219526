// SPDX-License-Identifier: Apache-2.0
// What is wrong with a job's place, from the facts of its ranks. Pure functions, run by rank 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/doctor/facts.hpp"

namespace apps::doctor {

enum class Level { ok, warning, error };

struct Finding {
  Level level;
  std::string topic;   ///< "memory"
  std::string text;    ///< what is so: where, expected, found
  std::string remedy;  ///< what to do; empty if it is ok
};

/// What is known of the job that is to run.
struct Plan {
  std::uint64_t need = 0;  ///< bytes of values and optimizer states of one rank; 0: not said
  std::string directory;   ///< of checkpoints; empty: none
};

using Findings = std::vector<Finding>;

/// Each appends at least one finding. `ranks` holds the facts of all ranks, in their order.
void check_software(const std::vector<Facts>& ranks, Findings& findings);
void check_settings(const std::vector<Facts>& ranks, Findings& findings);
void check_processors(const std::vector<Facts>& ranks, Findings& findings);
void check_memory(const std::vector<Facts>& ranks, const Plan& plan, Findings& findings);
void check_limits(const std::vector<Facts>& ranks, Findings& findings);
void check_segments(const std::vector<Facts>& ranks, Findings& findings);
void check_hosts(const std::vector<Facts>& ranks, Findings& findings);
void check_network(const std::vector<Facts>& ranks, Findings& findings);
void check_clocks(const std::vector<Facts>& ranks, Findings& findings);
void check_gpus(const std::vector<Facts>& ranks, Findings& findings);
void check_directory(const std::vector<Facts>& ranks, const Plan& plan, Findings& findings);

/// All of them.
Findings check_all(const std::vector<Facts>& ranks, const Plan& plan);

}  // namespace apps::doctor
