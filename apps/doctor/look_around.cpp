// SPDX-License-Identifier: Apache-2.0
// Reads /proc, /sys, limits and the environment. What cannot be read stays as if it were no limit.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <set>
#include <sstream>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "apps/doctor/facts.hpp"
#include "apps/doctor/network.hpp"

extern char** environ;

namespace apps::doctor {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, separator);) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

void read_processors(Facts& facts) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) facts.processors.push_back(cpu);
    }
  }
  facts.host_processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  std::istringstream limit(first_line("/sys/fs/cgroup/cpu.max"));
  double quota = 0;
  double period = 0;
  if (limit >> quota >> period && period > 0) facts.quota = quota / period;
  std::istringstream(first_line("/proc/loadavg")) >> facts.load;
}

/// What a cgroup leaves, if it limits memory.
std::uint64_t left_in(const fs::path& group) {
  std::uint64_t most = 0;
  std::uint64_t used = 0;
  std::istringstream limit(first_line(group / "memory.max"));
  std::istringstream usage(first_line(group / "memory.current"));
  if (!(limit >> most) || !(usage >> used)) return kUnlimited;
  return most - std::min(most, used);
}

/// The least that this process's cgroup, and those above it, leave.
std::uint64_t cgroup_memory() {
  std::ifstream file("/proc/self/cgroup");
  std::uint64_t least = kUnlimited;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::")) continue;  // version 2
    for (fs::path group = line.substr(3); group.has_relative_path(); group = group.parent_path()) {
      least = std::min(least, left_in("/sys/fs/cgroup" + group.string()));
    }
  }
  return std::min(least, left_in("/sys/fs/cgroup"));
}

std::uint64_t limit_of(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return kUnlimited;
  return limit.rlim_cur == RLIM_INFINITY ? kUnlimited : limit.rlim_cur;
}

std::uint64_t free_of(const char* path) {
  struct statvfs info {};
  if (statvfs(path, &info) != 0) return 0;
  return std::uint64_t{info.f_bavail} * info.f_frsize;
}

void read_memory(Facts& facts) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kilobytes = 0;
  for (std::string line; std::getline(file, line);) {
    if (std::istringstream(line) >> name >> kilobytes && name == "MemAvailable:") {
      facts.memory = kilobytes << 10;
    }
  }
  facts.cgroup_memory = cgroup_memory();
  facts.shm_free = free_of("/dev/shm");
  facts.address_space = limit_of(RLIMIT_AS);
  facts.open_files = limit_of(RLIMIT_NOFILE);
  const int probe = memfd_create("tutti-doctor", MFD_CLOEXEC);
  facts.has_memfd = probe >= 0;
  if (probe >= 0) close(probe);
}

/// Segments are named tutti-PID-RANDOM and removed as soon as all ranks have mapped them.
void find_stale_segments(Facts& facts) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/dev/shm", ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("tutti-")) continue;
    const std::string pid = name.substr(6, name.find('-', 6) - 6);
    if (!fs::exists("/proc/" + pid, ignored)) facts.stale_segments.push_back(entry.path());
  }
}

void read_environment(Facts& facts) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (text.starts_with("TUTTI_") && equals != std::string::npos) {
      facts.settings[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  facts.tcp_include = variable("OMPI_MCA_btl_tcp_if_include");
  facts.tcp_exclude = variable("OMPI_MCA_btl_tcp_if_exclude");
  if (const std::string count = variable("SLURM_JOB_NUM_NODES"); !count.empty()) {
    std::istringstream(count) >> facts.allocated_hosts;
  } else if (const std::string file = variable("PBS_NODEFILE"); !file.empty()) {
    std::ifstream list(file);
    std::set<std::string> hosts;
    for (std::string host; list >> host;) hosts.insert(host);
    facts.allocated_hosts = static_cast<int>(hosts.size());
  }
}

void read_gpus(Facts& facts) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", ignored)) {
    facts.gpus += entry.exists(ignored) ? 1 : 0;
  }
  facts.restricts_gpus = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  if (facts.restricts_gpus) {
    facts.my_gpus = split(variable("CUDA_VISIBLE_DEVICES"), ',');
  } else {
    for (int gpu = 0; gpu < facts.gpus; ++gpu) facts.my_gpus.push_back(std::to_string(gpu));
  }
}

/// Whether a checkpoint could be written there: by writing a file.
void try_directory(Facts& facts, const std::string& directory) {
  if (directory.empty()) return;
  struct stat info {};
  const std::string probe = directory + "/.tutti-doctor-" + std::to_string(getpid());
  errno = 0;
  std::ofstream file(probe);
  file << "probe";
  file.close();
  facts.has_directory = static_cast<bool>(file);
  if (!facts.has_directory) facts.directory_error = std::strerror(errno);
  unlink(probe.c_str());
  facts.directory_free = free_of(directory.c_str());
  if (stat(directory.c_str(), &info) == 0) facts.directory_device = std::to_string(info.st_dev);
}

}  // namespace

Facts look_around(const std::string& directory) {
  Facts facts;
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  facts.host = name.data();
  facts.pid = getpid();
  read_processors(facts);
  read_memory(facts);
  find_stale_segments(facts);
  read_environment(facts);
  facts.interfaces = interfaces_up();
  read_gpus(facts);
  try_directory(facts, directory);
  return facts;
}

}  // namespace apps::doctor
