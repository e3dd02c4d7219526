// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "apps/doctor/facts.hpp"

namespace apps::doctor {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Interface, name, network)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Facts, rank, host, pid, library, mpi, thread_level, settings,
                                   processors, host_processors, quota, load, memory, cgroup_memory,
                                   shm_free, has_memfd, address_space, open_files, stale_segments,
                                   interfaces, tcp_include, tcp_exclude, clock_offset_s, gpus,
                                   my_gpus, restricts_gpus, has_directory, directory_error,
                                   directory_free, directory_device, allocated_hosts, node)

std::string to_text(const Facts& facts) { return nlohmann::json(facts).dump(); }

Facts from_text(const std::string& text) { return nlohmann::json::parse(text).get<Facts>(); }

}  // namespace apps::doctor
