// SPDX-License-Identifier: Apache-2.0
// Facts that ranks exchange when a group is made: RankCard has what must be equal on all ranks,
// RankInfo what the ranks of a host share.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/settings.hpp"

#include "collectives/job/topology.hpp"
#include "runtime/job/processors.hpp"
#include "runtime/mpi/early_collectives.hpp"

namespace tutti::mpi {

/// The facts that must be equal on all ranks. All ranks get rank 0's card, and that of a rank that
/// differs.
struct RankCard {
  char host[128];
  char version[32];
  std::uint64_t settings_digest;  ///< digest of settings_to_compare()
  std::uint32_t control_bytes;    ///< size of WideControlBlock, for the layout of shared memory
  std::uint32_t float_control;    ///< rounding and flush-to-zero mode of the processor
  char file[64];                  ///< file and id of build_id()
  char build[64];
};

/// The beginning of settings_to_compare(), to show a difference.
struct SettingsText {
  char lines[1024];
};

/// Throws the same invalid_argument on all ranks unless all cards are equal to rank 0's. Warns if
/// ranks run different builds of one file, whose messages may differ. Collective. Memory does not
/// grow with the number of ranks.
void require_equal_ranks(EarlyCollectives& ranks, const Settings& settings);

/// Throws that error for two cards that differ, on rank `own_rank`; `texts` returns the settings of
/// both.
void require_equal_cards(const RankCard& first, const RankCard& other, int other_rank, int own_rank,
                         const std::function<std::array<SettingsText, 2>()>& texts);

/// The facts that a rank tells the ranks of its host.
struct RankInfo {
  char host[128];
  std::int32_t rank;
  ProcessorSet hardware_threads;  ///< those that this process may use
  ProcessorSet cores;             ///< the cores of these threads
  double quota;                   ///< processor time of its cgroups; 0: no limit
  std::int64_t process;           ///< process ID
  std::uint64_t process_space;    ///< PID namespace; 0 if not known
};

/// The ranks that share memory with this one according to MPI, in the order of ranks.
struct HostRanks {
  Comm comm;  ///< to be freed by free_part()
  std::vector<RankInfo> infos;
  std::size_t own = 0;  ///< index of this rank

  [[nodiscard]] const RankInfo& self() const { return infos[own]; }
  [[nodiscard]] bool is_first() const { return own == 0; }
};

/// Exchanges the facts of the ranks of this host. Collective.
HostRanks meet_host(EarlyCollectives& ranks);
/// Frees the communicator. Collective over the ranks of a host.
void free_part(Comm comm);

/// Returns the ranks of this rank's node, as places in `host`, according to
/// Settings::ranks_per_node.
std::vector<std::size_t> node_on_host(const HostRanks& host, const Settings& settings);

/// Sets the shares of cores in the topology. They are the same on all ranks of the host, because
/// they follow from the facts of all.
void share_cores(collectives::Topology& topology, const HostRanks& host);

}  // namespace tutti::mpi
