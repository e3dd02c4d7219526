// SPDX-License-Identifier: Apache-2.0
// What every rank tells all others when a group is made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/settings.hpp"

#include "collectives/topology.hpp"
#include "runtime/mpi/early_collectives.hpp"

namespace tutti::mpi {

struct Card {
  char host[128];
  char version[32];
  char settings[512];             ///< in words, so that a difference can be shown
  std::uint64_t settings_digest;  ///< of all the words
  std::uint32_t control_bytes;    ///< layout of the shared memory
  std::uint32_t float_control;    ///< rounding and flush-to-zero mode of the processor
  std::int32_t host_first;        ///< lowest rank that MPI says shares memory with this one
  std::uint64_t cores[16];        ///< bit i: this process may use core i
  std::int64_t process;           ///< its number
  std::uint64_t process_space;    ///< namespace in which the number counts; 0 if not known
};

/// The cards of all ranks. Collective.
std::vector<Card> exchange_cards(EarlyCollectives& ranks, const Settings& settings);

/// Throws the same invalid_argument on all ranks unless all cards say what rank 0's says.
void require_equal_cards(const std::vector<Card>& cards, int rank);

/// Nodes as the cards and Settings::ranks_per_node have them.
collectives::Topology topology_of(const std::vector<Card>& cards, int rank,
                                  const Settings& settings);

}  // namespace tutti::mpi
