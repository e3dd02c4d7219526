// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/processors.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <sched.h>

#include "collectives/text/numbers.hpp"
#include "runtime/base/system_file.hpp"
#include "runtime/job/cgroups.hpp"

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

/// A core is identified by its lowest thread, with which the kernel's list begins: "3,19" or "6-7".
ProcessorSet cores_of(const ProcessorSet& hardware_threads, const std::string& folder) {
  ProcessorSet cores{};
  for (int number = 0; number < kMostProcessors; ++number) {
    if (!has(hardware_threads, number)) continue;
    const std::string list = read_system_file(folder + "/cpu" + std::to_string(number) +
                                              "/topology/thread_siblings_list");
    const auto first = number_of<int>(list.substr(0, list.find_first_of(",-\n")));
    const bool known = first && *first >= 0 && *first < kMostProcessors;
    add(cores, known ? *first : number);
  }
  return cores;
}

namespace {

/// Returns the quota of a group; 0 means no limit. Version 2 has "max 100000" or "120000 100000";
/// version 1 has -1 for no limit.
double quota_of(const Cgroup& group) {
  const bool is_newer = group.version == 2;
  const std::string text = is_newer ? read_system_file(group.folder + "/cpu.max")
                                    : read_system_file(group.folder + "/cpu.cfs_quota_us") + " " +
                                          read_system_file(group.folder + "/cpu.cfs_period_us");
  const auto words = words_of(text);
  if (words.size() < 2) return 0;
  const auto quota = number_of<std::int64_t>(words[0]);
  const auto period = number_of<std::int64_t>(words[1]);
  if (!quota || !period || *quota <= 0 || *period <= 0) return 0;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

double usable(const ProcessorSet& processors, double quota) {
  const double there = count(processors);
  return quota > 0 ? std::min(quota, there) : there;
}

}  // namespace

double processor_quota(const std::string& groups, const std::string& mounted) {
  double least = 0;
  for (const Cgroup& group : cgroups_of("cpu", groups, mounted)) {
    const double quota = quota_of(group);
    if (quota > 0) least = least > 0 ? std::min(least, quota) : quota;
  }
  return least;
}

int cores_per_rank(const ProcessorSet& cores, double quota, int ranks) {
  return std::max(1, static_cast<int>(usable(cores, quota) / std::max(1, ranks)));
}

int ranks_per_core(const ProcessorSet& hardware_threads, double quota, int ranks) {
  const double there = usable(hardware_threads, quota);
  return there > 0 ? std::max(1, static_cast<int>(std::ceil(ranks / there))) : 1;
}

int launched_ranks() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
    const char* text = std::getenv(name);
    if (text != nullptr) return std::max(1, std::atoi(text));
  }
  return 1;
}

}  // namespace tutti
