// SPDX-License-Identifier: Apache-2.0
// What every rank tells all others when a group is made.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/settings.hpp"

#include "collectives/topology.hpp"
#include "runtime/job/processors.hpp"
#include "runtime/mpi/early_collectives.hpp"

namespace tutti::mpi {

/// What a rank tells all others when a group is made.
struct RankInfo {
  char host[128];
  char version[32];
  std::uint64_t settings_digest;  ///< of settings_to_compare()
  std::uint32_t control_bytes;    ///< layout of the shared memory
  std::uint32_t float_control;    ///< rounding and flush-to-zero mode of the processor
  std::int32_t host_first;        ///< lowest rank that MPI says shares memory with this one
  ProcessorSet hardware_threads;  ///< that this process may use
  ProcessorSet cores;             ///< that they belong to
  std::int32_t quota;             ///< processors' time of its cgroup; 0: no limit
  std::int64_t process;           ///< its number
  std::uint64_t process_space;    ///< namespace in which the number counts; 0 if not known
};

/// The infos of all ranks. Collective.
std::vector<RankInfo> exchange_rank_infos(EarlyCollectives& ranks, const Settings& settings);

/// settings_to_compare(), as much as fits, to show a difference.
struct SettingsText {
  char lines[1024];
};

/// The texts of all ranks. Collective.
std::vector<SettingsText> exchange_settings(EarlyCollectives& ranks, const Settings& settings);

/// Throws the same invalid_argument on all ranks unless the infos of all ranks are like rank 0's.
/// Where settings differ, every rank calls `exchange` for their texts.
void require_equal_ranks(const std::vector<RankInfo>& infos, int rank,
                         const std::function<std::vector<SettingsText>()>& exchange);

/// The nodes as the infos and Settings::ranks_per_node have them.
collectives::Topology topology_of(const std::vector<RankInfo>& infos, int rank,
                                  const Settings& settings);

}  // namespace tutti::mpi
