// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other when a group is made: all of them what must be equal, those of a host
// what they share.
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

/// What must be equal on all ranks. Rank 0's comes to all, and another's where it differs.
struct RankCard {
  char host[128];
  char version[32];
  std::uint64_t settings_digest;  ///< of settings_to_compare()
  std::uint32_t control_bytes;    ///< layout of the shared memory
  std::uint32_t float_control;    ///< rounding and flush-to-zero mode of the processor
  char file[64];                  ///< build_id()
  char build[64];
};

/// settings_to_compare(), as much as fits, to show a difference.
struct SettingsText {
  char lines[1024];
};

/// Throws the same invalid_argument on all ranks unless the cards of all ranks are like rank 0's.
/// Warns where ranks run different builds of one file, which may disagree in what they send.
/// Collective. What a rank keeps does not grow with their number.
void require_equal_ranks(EarlyCollectives& ranks, const Settings& settings);

/// What it throws where these two differ, on rank `own_rank`; `texts` gives the settings of both.
void require_equal_cards(const RankCard& first, const RankCard& other, int other_rank, int own_rank,
                         const std::function<std::array<SettingsText, 2>()>& texts);

/// What a rank tells those of its host.
struct RankInfo {
  char host[128];
  std::int32_t rank;
  ProcessorSet hardware_threads;  ///< that this process may use
  ProcessorSet cores;             ///< that they belong to
  double quota;                   ///< processors' time of its cgroups; 0: no limit
  std::int64_t process;           ///< its number
  std::uint64_t process_space;    ///< namespace in which the number counts; 0 if not known
};

/// The ranks that MPI says share memory with this one, in the order of ranks.
struct HostRanks {
  Comm comm;  ///< freed by free_part()
  std::vector<RankInfo> infos;
  std::size_t own = 0;  ///< this rank's place

  [[nodiscard]] const RankInfo& self() const { return infos[own]; }
  [[nodiscard]] bool is_first() const { return own == 0; }
};

/// Collective.
HostRanks meet_host(EarlyCollectives& ranks);
/// Collective over the ranks of a host.
void free_part(Comm comm);

/// The places in `host` of the ranks of this rank's node, as Settings::ranks_per_node has it.
std::vector<std::size_t> node_on_host(const HostRanks& host, const Settings& settings);

/// What the ranks of this host may use between them: the same on all of them, because it follows
/// from what each has said.
void share_cores(collectives::Topology& topology, const HostRanks& host);

}  // namespace tutti::mpi
