// SPDX-License-Identifier: Apache-2.0
// One case on one simulated cluster: by the library, or by an algorithm of the textbook.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/simulator/critical_path.hpp"
#include "apps/simulator/network_file.hpp"
#include "runtime/simulated/wires.hpp"

namespace apps::simulator {

/// When the calls of a case begin.
enum class Begin : bool {
  together,       ///< all ranks at one time, when nothing is under way
  after_barrier,  ///< one right after the other, each after two barriers: collective-benchmark's
};

struct SimulatedCall {
  int nodes = 1;
  int ranks_per_node = 1;
  std::size_t bytes = 0;            ///< of a rank, float32
  std::string algorithm = "tutti";  ///< or the name of one of textbook_algorithms()
  bool learns = true;               ///< the library has found its way before the call that counts
  std::string collective = "allreduce";  ///< or pushpull, of one key; the library's alone
  std::string compression = "none";      ///< of a pushpull, as compression::create() reads it
  std::string buffers = "user";          ///< or store: memory of the node. The library's alone
  Begin begin = Begin::together;
  std::string overrides{};  ///< of the library's choices, as TUTTI_ALGORITHMS has them

  [[nodiscard]] int ranks() const { return nodes * ranks_per_node; }
};

struct Measured {
  SimulatedCall what;
  double seconds = 0;                  ///< from its begin to its end, of the slowest rank
  tutti::simulated::Traffic traffic;   ///< of the call
  std::optional<std::uint64_t> wrong;  ///< elements over all ranks; unset: not checked
  std::size_t memory_per_rank = 0;     ///< bytes of this process that came with the cluster
  CriticalPath path;                   ///< of the slowest rank
};

/// Ranks at most; a rank's table of all ranks makes memory grow with the square.
inline constexpr int kMostRanks = 16384;

/// Errors  out_of_memory: this machine has too little of it available for the case.
void require_memory(const SimulatedCall& what);

/// A call after two others, in which the library has got its buffers, or after as many as it learns
/// in, 100 at most; after barriers the median of many, because a call finds the links as the one
/// before has left them. Contents are real, and checked, as long as those of all ranks take no more
/// than 256 MiB; what 2bit, 1bit and topk give is not checked. Errors  those of require_memory(),
/// before anything is done; what a rank threw.
Measured measure(const NamedNetwork& network, const SimulatedCall& what);

}  // namespace apps::simulator
