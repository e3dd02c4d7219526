// SPDX-License-Identifier: Apache-2.0
// The facts that one rank finds out about its process and its host. The checks have no other input,
// so tests can make up machines that do not exist.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <tutti/launch.hpp>

namespace apps::doctor {

/// An address of a network interface that is up and is not the loopback.
struct Interface {
  std::string name;
  std::string network;  ///< network with its length: "10.1.0.0/16"
};

/// Sizes are bytes; kUnlimited stands for "no limit".
inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

struct RankInfo {
  int rank = 0;
  std::string host;
  std::int64_t pid = 0;
  std::string library;       ///< version of Tutti
  std::string mpi;           ///< version of MPI, one line
  std::string mpi_of_build;  ///< version of MPI that Tutti was built with
  int world_size = 1;        ///< ranks of MPI_COMM_WORLD
  int thread_level = 0;
  tutti::Launch launch;  ///< the launcher of this process; without a name if it is not known
  std::map<std::string, std::string> settings;  ///< TUTTI_* variables

  std::vector<int> processors;  ///< numbers of the processors that this rank may run on
  int host_processors = 0;      ///< number of processors that the host has online
  double quota = 0;             ///< processors that the cgroup allows; 0: no limit
  double load = 0;              ///< load of the host over the last minute

  std::uint64_t memory = 0;  ///< memory that the host has available
  std::uint64_t cgroup_memory = kUnlimited;
  std::uint64_t shm_free = 0;  ///< free in /dev/shm
  bool has_memfd = true;
  std::string huge_pages;  ///< for shared memory: "never", "advise", ...; empty: not known
  std::uint64_t address_space = kUnlimited;  ///< ulimit -v
  std::uint64_t open_files = kUnlimited;     ///< ulimit -n
  std::uint64_t file_bytes = kUnlimited;     ///< ulimit -f
  std::uint64_t processes = kUnlimited;      ///< ulimit -u: processes and threads of the user
  std::uint64_t data_bytes = kUnlimited;     ///< ulimit -d
  std::uint64_t locked_bytes = kUnlimited;   ///< ulimit -l
  std::uint64_t stack_bytes = kUnlimited;    ///< ulimit -s
  std::vector<std::string> stale_segments;   ///< files of ended processes in /dev/shm
  std::uint64_t stale_bytes = 0;             ///< size of these files

  std::vector<Interface> interfaces;
  std::string tcp_include;  ///< interfaces that MPI's TCP transport was told to use
  std::string tcp_exclude;
  double clock_offset_s = 0;  ///< difference to rank 0's clock

  int gpus = 0;                      ///< number of GPUs of the host
  std::vector<std::string> my_gpus;  ///< GPUs that this rank may use, by number or name
  bool restricts_gpus = false;       ///< CUDA_VISIBLE_DEVICES is set
  int usable_gpus = 0;               ///< number of GPUs that the library can use in this process
  std::string gpu_text;              ///< their names, or "none: " and the reason

  bool has_directory = false;  ///< a file could be written in the checkpoints' folder, or beside
                               ///< it where it is still to be made
  std::string directory_error;
  std::uint64_t directory_free = 0;
  std::string directory_device;  ///< its file system, which shows whether hosts share it

  int allocated_hosts = 0;     ///< number of hosts that the batch system gave to the job; 0: none
  int node = 0;                ///< index of the node whose memory this rank shares; -1: not tried
  std::string why_unreadable;  ///< the reason why its node's ranks cannot read each other's memory
};

/// The facts that this process can find out alone. `directory` may be empty.
RankInfo collect_rank_info(const std::string& directory);

/// Facts as text, in which they travel to rank 0, and back.
std::string to_text(const RankInfo& info);
RankInfo from_text(const std::string& text);

}  // namespace apps::doctor
