// SPDX-License-Identifier: Apache-2.0
// The machine of a run, for the head of the table and for the JSON; and its memory's speed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <tutti/communicator.hpp>
#include <tutti/mpi.hpp>

#include "apps/benchmark/result.hpp"

namespace apps::benchmark {

/// A computer and how many ranks it runs.
struct Host {
  std::string name;
  int ranks = 0;
};

struct Machine {
  std::vector<Host> hosts;
  int ranks = 1;
  int nodes = 1;  ///< nodes of the communicator: hosts, unless they are split
  std::string library;
  std::string mpi;
  std::string vector_instructions;
  std::string processor;
  std::size_t cache_bytes = 0;          ///< last-level cache of this rank's processor
  std::vector<std::string> algorithms;  ///< the library's choices, one line each
  /// Settings::tuning: how the library makes choices that it learns.
  std::string tuning{};
  std::string started;  ///< time in UTC: "2025-01-31T12:00:00Z"
};

/// Finds out about the machine, except for `tuning`, which the settings of `world` have.
/// Collective.
Machine describe_machine(tutti::Communicator& world, MPI_Comm comm);

/// The hosts with their numbers of ranks: "node1 (2), node2 (2)".
std::string hosts_text(const std::vector<Host>& hosts);

/// The place of a run: "2 ranks on 1 node: node1 (2)", with the names of three hosts at most.
std::string place_text(const Machine& machine);

/// The text behind "NAME: " in lines like those of build_info(); "unknown" if there is none.
std::string field_of(const std::string& lines, const std::string& name);

// --- the memory's own speed, to measure collectives against --------------------------------------

/// The most that the measurement takes, whatever the cache's size: bytes of the arrays of all ranks
/// of a node together, and bytes that they write and read, the first touch included.
inline constexpr std::size_t kMostProbeBytes = std::size_t{384} << 20;
inline constexpr std::size_t kMostProbedBytes = 4 * kMostProbeBytes;
inline constexpr double kMostProbeSeconds = 0.2;  ///< no addition begins later

struct MemoryProbe {
  std::size_t array_bytes = 0;  ///< each of a rank's three arrays
  int repetitions = 0;          ///< the most additions
  bool exceeds_cache = true;    ///< false: the last-level cache may hold most of the arrays
};
MemoryProbe plan_memory_probe(std::size_t cache_bytes, int ranks_of_node);

/// Computes sum[i] = left[i] + right[i], with stores that bypass the caches where the processor has
/// them. The spans are equally long and aligned to 64 bytes.
void add_streaming(std::span<const float> left, std::span<const float> right, std::span<float> sum);

/// Measures an addition as in STREAM, on all ranks at once; counts two reads and a write of each
/// element. The result is the median of several. Collective.
MemorySpeed measure_memory(tutti::Communicator& world, MPI_Comm comm, const MemoryProbe& probe);

}  // namespace apps::benchmark
