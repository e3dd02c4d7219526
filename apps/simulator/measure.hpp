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

/// The time at which the calls of a case begin.
enum class Begin : bool {
  together,  ///< all ranks at the same time, when nothing is under way
  /// One right after the other, each after two barriers, as in collective-benchmark.
  after_barrier,
};

struct SimulatedCall {
  int nodes = 1;
  int ranks_per_node = 1;
  std::size_t bytes = 0;            ///< bytes of a rank's values, float32
  std::string algorithm = "tutti";  ///< or the name of one of textbook_algorithms()
  bool learns = true;               ///< the library has found its way before the call that counts
  std::string collective = "allreduce";  ///< or pushpull, of one key; only with the library
  /// Compression of a pushpull, as compression::create() reads it.
  std::string compression = "none";
  std::string buffers = "user";  ///< or store: memory of the node. Only with the library
  Begin begin = Begin::together;
  std::string overrides{};  ///< replacements of the library's choices, as in TUTTI_ALGORITHMS

  [[nodiscard]] int ranks() const { return nodes * ranks_per_node; }
};

struct Measured {
  SimulatedCall what;
  double seconds = 0;                  ///< of the slowest rank, from its begin to its end
  tutti::simulated::Traffic traffic;   ///< traffic of the call
  std::optional<std::uint64_t> wrong;  ///< elements over all ranks; unset: not checked
  std::size_t memory_per_rank = 0;     ///< bytes that this process grew by with the cluster
  CriticalPath path;                   ///< path of the slowest rank
};

/// The most ranks of a cluster; a rank's table of all ranks makes memory grow with the square.
inline constexpr int kMostRanks = 16384;

/// Throws if this machine has too little memory. Errors  out_of_memory: this machine has too little
/// of it available for the case.
void require_memory(const SimulatedCall& what);

/// Measures a call after two others, in which the library has got its buffers, or after as many as
/// it learns in, 100 at most. After barriers, it measures the median of many calls, because a call
/// finds the links as the one before has left them. Contents are real, and checked, as long as
/// those of all ranks take no more than 256 MiB; results of 2bit, 1bit and topk are not checked.
/// Errors  those of require_memory(), before anything is done; an exception of a rank.
Measured measure(const NamedNetwork& network, const SimulatedCall& what);

}  // namespace apps::simulator
