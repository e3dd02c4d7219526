// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/processors.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <sched.h>

namespace tutti {

namespace {

constexpr int kMostProcessors = 64 * static_cast<int>(std::tuple_size_v<ProcessorSet>);

bool has(const ProcessorSet& set, int number) {
  return (set[static_cast<std::size_t>(number) / 64] >> (number % 64) & 1) != 0;
}

void add(ProcessorSet& set, int number) {
  set[static_cast<std::size_t>(number) / 64] |= std::uint64_t{1} << (number % 64);
}

}  // namespace

int count(const ProcessorSet& set) {
  int bits = 0;
  for (const std::uint64_t word : set) bits += std::popcount(word);
  return bits;
}

ProcessorSet usable_hardware_threads() {
  ProcessorSet usable{};
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return usable;
  for (int number = 0; number < kMostProcessors; ++number) {
    if (CPU_ISSET(number, &set)) add(usable, number);
  }
  return usable;
}

/// The list of a core's threads begins with the lowest: "3,19" or "6-7".
ProcessorSet cores_of(const ProcessorSet& hardware_threads, const std::string& folder) {
  ProcessorSet cores{};
  for (int number = 0; number < kMostProcessors; ++number) {
    if (!has(hardware_threads, number)) continue;
    std::ifstream file(folder + "/cpu" + std::to_string(number) + "/topology/thread_siblings_list");
    int first = number;
    const bool known = file >> first && first >= 0 && first < kMostProcessors;
    add(cores, known ? first : number);
  }
  return cores;
}

int processor_quota(const std::string& file) {
  std::ifstream limit(file);
  double quota = 0;
  double period = 0;
  if (!(limit >> quota >> period) || period <= 0) return 0;  // no such file, or "max"
  return std::max(1, static_cast<int>(quota / period));
}

int cores_per_rank(const ProcessorSet& cores, int quota, int ranks) {
  const int usable = quota > 0 ? std::min(quota, count(cores)) : count(cores);
  return std::max(1, usable / std::max(1, ranks));
}

int launched_ranks() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
    const char* text = std::getenv(name);
    if (text != nullptr) return std::max(1, std::atoi(text));
  }
  return 1;
}

}  // namespace tutti
