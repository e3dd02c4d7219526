// SPDX-License-Identifier: Apache-2.0
// Checks of a job's hosts, from the facts of its ranks. Pure functions, run by rank 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/doctor/rank_info.hpp"
#include "support/text.hpp"

namespace apps::doctor {

enum class Level { ok, warning, error };

struct Finding {
  Level level;
  std::string topic;   ///< "memory"
  std::string text;    ///< the facts: where, expected, got
  std::string remedy;  ///< what to do; empty if it is ok
};

/// Facts about the job that will run, from the command line.
struct Plan {
  std::uint64_t need = 0;  ///< bytes of values and optimizer states of one rank; 0: not given
  std::string directory;   ///< folder of the checkpoints; empty: none
};

using Findings = std::vector<Finding>;

/// The checks. Each appends at least one finding. `ranks` holds the facts of all ranks, in their
/// order.
void check_software(const std::vector<RankInfo>& ranks, Findings& findings);
void check_launch(const std::vector<RankInfo>& ranks, Findings& findings);
void check_settings(const std::vector<RankInfo>& ranks, Findings& findings);
void check_processors(const std::vector<RankInfo>& ranks, Findings& findings);
void check_memory(const std::vector<RankInfo>& ranks, const Plan& plan, Findings& findings);
void check_pages(const std::vector<RankInfo>& ranks, Findings& findings);
void check_reading(const std::vector<RankInfo>& ranks, Findings& findings);
void check_limits(const std::vector<RankInfo>& ranks, Findings& findings);
void check_segments(const std::vector<RankInfo>& ranks, Findings& findings);
void check_hosts(const std::vector<RankInfo>& ranks, Findings& findings);
void check_network(const std::vector<RankInfo>& ranks, Findings& findings);
void check_clocks(const std::vector<RankInfo>& ranks, Findings& findings);
void check_gpus(const std::vector<RankInfo>& ranks, Findings& findings);
void check_directory(const std::vector<RankInfo>& ranks, const Plan& plan, Findings& findings);

/// The error if MPI knows this rank alone and its launcher has started others beside it; else
/// empty.
std::string launch_error(const RankInfo& info);

/// Runs all of these checks.
Findings check_all(const std::vector<RankInfo>& ranks, const Plan& plan);

// --- ranks grouped by host, and words for messages -----------------------------------------------

struct Host {
  std::string name;
  std::vector<const RankInfo*> ranks;
  [[nodiscard]] const RankInfo& first() const { return *ranks.front(); }
};

/// The hosts with their ranks, in the order of their first ranks.
std::vector<Host> by_host(const std::vector<RankInfo>& ranks);

/// A size as text: "1.5 GiB".
inline std::string size_text(std::uint64_t bytes) { return bytes_text(static_cast<double>(bytes)); }
/// A list as text: "0, 1 and 5".
std::string list_text(const std::vector<std::string>& words);
/// Ranks as text: "rank 3" or "ranks 0 and 3".
std::string ranks_text(const std::vector<const RankInfo*>& ranks);

}  // namespace apps::doctor
