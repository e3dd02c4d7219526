// SPDX-License-Identifier: Apache-2.0
// Allreduces on one simulated cluster: the library's, and the textbook's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/simulator/network_file.hpp"
#include "runtime/simulated/wires.hpp"

namespace apps::simulator {

struct Case {
  int nodes = 1;
  int ranks_per_node = 1;
  std::size_t bytes = 0;            ///< of a rank, float32
  std::string algorithm = "tutti";  ///< or the name of one of textbook_algorithms()
  bool learns = true;               ///< the library has found its way before the call that counts

  [[nodiscard]] int ranks() const { return nodes * ranks_per_node; }
};

struct Measured {
  Case what;
  double seconds = 0;                  ///< from the common begin to the end of the last rank
  tutti::simulated::Traffic traffic;   ///< of the call
  std::optional<std::uint64_t> wrong;  ///< elements over all ranks; unset: times alone
  std::size_t memory_per_rank = 0;     ///< bytes of this process that came with the cluster
};

/// Ranks at most; a rank's table of all ranks makes memory grow with the square.
inline constexpr int kMostRanks = 16384;

/// Errors  out_of_memory: this machine has too little of it available for the case.
void require_memory(const Case& what);

/// The last of two calls, in which the library has its buffers, or of as many as it learns in,
/// 100 at most. Contents are real, and checked, as long as those of all ranks take no more than
/// 256 MiB. Errors  those of require_memory(), before anything is done; what a rank threw.
Measured measure(const NamedNetwork& network, const Case& what);

}  // namespace apps::simulator
