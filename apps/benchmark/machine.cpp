// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/machine.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include <tutti/error.hpp>
#include <tutti/program.hpp>
#include <tutti/settings.hpp>

#include "apps/benchmark/mpi_calls.hpp"

namespace apps::benchmark {
namespace {

constexpr std::size_t kUsualCacheBytes = std::size_t{32} << 20;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// What Linux says about the last cache of the first core; sysconf's number belongs to all sockets
/// on some machines.
std::size_t last_level_cache() {
  std::size_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string size = first_line(folder + "size");
    if (size.empty()) continue;
    try {
      largest = std::max(largest, tutti::parse_bytes(size));
    } catch (const tutti::Error&) {  // not a size: as if it were not there
    }
  }
  return largest > 0 ? largest : kUsualCacheBytes;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t start = line.find(": ");
    if (start != std::string::npos) return line.substr(start + 2);
  }
  return "unknown";
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string time_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::vector<Host> gather_hosts(MPI_Comm comm, int ranks) {
  std::vector<Host> hosts;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string name = text_of_rank(comm, host_name(), rank);
    const auto known = std::find_if(hosts.begin(), hosts.end(),
                                    [&](const Host& host) { return host.name == name; });
    if (known == hosts.end()) {
      hosts.push_back({name, 1});
    } else {
      ++known->ranks;
    }
  }
  return hosts;
}

}  // namespace

std::string field_of(const std::string& lines, const std::string& name) {
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(name + ": ")) return line.substr(name.size() + 2);
  }
  return "unknown";
}

Machine look_around(tutti::Communicator& world, MPI_Comm comm) {
  const std::string info = tutti::build_info();
  return {.hosts = gather_hosts(comm, world.size()),
          .ranks = world.size(),
          .nodes = world.num_nodes(),
          .library = info.substr(0, info.find('\n')),
          .mpi = field_of(info, "MPI"),
          .vector_instructions = field_of(info, "vector instructions"),
          .processor = processor_name(),
          .cache_bytes = last_level_cache(),
          .algorithms = world.algorithms(),
          .started = time_now()};
}

std::string hosts_text(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) {
    text += (text.empty() ? "" : ", ") + host.name + " (" + std::to_string(host.ranks) + ")";
  }
  return text;
}

}  // namespace apps::benchmark
