// SPDX-License-Identifier: Apache-2.0
#include "apps/doctor/rank_info.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <set>
#include <sstream>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <tutti/error.hpp>
#include <tutti/gpu.hpp>

extern char** environ;

namespace tutti {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Launch, launcher, evidence, size, rank)

}  // namespace tutti

namespace apps::doctor {

namespace {

std::uint32_t address_in(const sockaddr* address) {
  return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
}

std::string network_text(std::uint32_t network, int bits) {
  const in_addr address{htonl(network)};
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &address, text.data(), text.size());
  return std::string(text.data()) + "/" + std::to_string(bits);
}

/// The interfaces with an address of IP version 4 that are up, without the loopback.
std::vector<Interface> interfaces_up() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    const bool is_ipv4 = one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET;
    const bool is_up = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (!is_ipv4 || !is_up || one->ifa_netmask == nullptr) continue;
    const std::uint32_t mask = address_in(one->ifa_netmask);
    found.push_back(
        {one->ifa_name, network_text(address_in(one->ifa_addr) & mask, std::popcount(mask))});
  }
  return found;
}

// --- /proc, /sys, limits and the environment: a value that cannot be read is "no limit" ----------

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

/// A cgroup's folder; version 1 has a tree for each controller.
struct Cgroup {
  fs::path folder;
  int version;
};

/// The cgroups of this process that have the controller, and the cgroups above them.
std::vector<Cgroup> cgroups(const std::string& controller) {
  const fs::path root = "/sys/fs/cgroup";
  std::vector<Cgroup> found;
  const auto add = [&](const fs::path& mount, fs::path group, int version) {
    for (; group.has_relative_path(); group = group.parent_path()) {
      found.push_back({mount / group.relative_path(), version});
    }
    found.push_back({mount, version});
  };
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // NUMBER:CONTROLLERS:GROUP
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string list = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (list.empty()) add(root, group, 2);
    const bool has_it = ("," + list + ",").find("," + controller + ",") != list.npos;
    if (has_it) add(root / controller, group, 1);
    if (has_it && list != controller) add(root / list, group, 1);
  }
  return found;
}

/// The number of processors that a cgroup allows; 0: no limit.
double quota_of(const Cgroup& group) {
  const bool is_newer = group.version == 2;
  std::istringstream limit(is_newer ? first_line(group.folder / "cpu.max")
                                    : first_line(group.folder / "cpu.cfs_quota_us") + " " +
                                          first_line(group.folder / "cpu.cfs_period_us"));
  double quota = 0;
  double period = 0;
  return limit >> quota >> period && period > 0 && quota > 0 ? quota / period : 0;
}

void read_processors(RankInfo& info) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) info.processors.push_back(cpu);
    }
  }
  info.host_processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  for (const Cgroup& group : cgroups("cpu")) {
    const double quota = quota_of(group);
    if (quota > 0) info.quota = info.quota > 0 ? std::min(info.quota, quota) : quota;
  }
  std::istringstream(first_line("/proc/loadavg")) >> info.load;
}

/// The bytes of the page cache, which count as used, but which the kernel gives back when memory is
/// needed.
std::uint64_t kept_of_files(const Cgroup& group) {
  const std::string prefix = group.version == 1 ? "total_" : "";
  std::ifstream file(group.folder / "memory.stat");
  std::uint64_t kept = 0;
  std::uint64_t bytes = 0;
  for (std::string name; file >> name >> bytes;) {
    if (name == prefix + "inactive_file" || name == prefix + "active_file") kept += bytes;
  }
  return kept;
}

/// The memory that a cgroup leaves, if it limits memory.
std::uint64_t left_in(const Cgroup& group) {
  const bool is_newer = group.version == 2;
  std::uint64_t most = 0;
  std::uint64_t used = 0;
  std::istringstream limit(
      first_line(group.folder / (is_newer ? "memory.max" : "memory.limit_in_bytes")));
  std::istringstream usage(
      first_line(group.folder / (is_newer ? "memory.current" : "memory.usage_in_bytes")));
  if (!(limit >> most) || !(usage >> used)) return kUnlimited;
  used -= std::min(used, kept_of_files(group));
  return most - std::min(most, used);
}

/// The least memory that this process's cgroups, and those above them, leave.
std::uint64_t cgroup_memory() {
  std::uint64_t least = kUnlimited;
  for (const Cgroup& group : cgroups("memory")) least = std::min(least, left_in(group));
  return least;
}

/// The word in brackets of a line such as "always [never] advise", empty if there is none.
std::string chosen_word(const std::string& line) {
  const auto begin = line.find('[');
  const auto end = line.find(']');
  if (begin == line.npos || end == line.npos || end < begin) return "";
  return line.substr(begin + 1, end - begin - 1);
}

std::uint64_t limit_of(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return kUnlimited;
  return limit.rlim_cur == RLIM_INFINITY ? kUnlimited : limit.rlim_cur;
}

std::uint64_t free_of(const char* path) {
  struct statvfs status {};
  if (statvfs(path, &status) != 0) return 0;
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

void read_memory(RankInfo& info) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kilobytes = 0;
  for (std::string line; std::getline(file, line);) {
    if (std::istringstream(line) >> name >> kilobytes && name == "MemAvailable:") {
      info.memory = kilobytes << 10;
    }
  }
  info.cgroup_memory = cgroup_memory();
  info.shm_free = free_of("/dev/shm");
  info.huge_pages = chosen_word(first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  info.address_space = limit_of(RLIMIT_AS);
  info.open_files = limit_of(RLIMIT_NOFILE);
  info.file_bytes = limit_of(RLIMIT_FSIZE);
  info.processes = limit_of(RLIMIT_NPROC);
  info.data_bytes = limit_of(RLIMIT_DATA);
  info.locked_bytes = limit_of(RLIMIT_MEMLOCK);
  info.stack_bytes = limit_of(RLIMIT_STACK);
  const int probe = memfd_create("tutti-doctor", MFD_CLOEXEC);
  info.has_memfd = probe >= 0;
  if (probe >= 0) close(probe);
}

/// Finds files of ended processes. Segments are named tutti-PID-RANDOM, and removed as soon as all
/// ranks have mapped them.
void find_stale_segments(RankInfo& info) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/dev/shm", ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("tutti-")) continue;
    const std::string pid = name.substr(6, name.find('-', 6) - 6);
    if (fs::exists("/proc/" + pid, ignored)) continue;
    info.stale_segments.push_back(entry.path());
    const auto bytes = entry.file_size(ignored);
    if (!ignored) info.stale_bytes += bytes;
  }
}

void read_environment(RankInfo& info) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (text.starts_with("TUTTI_") && equals != std::string::npos) {
      info.settings[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  info.launch = tutti::find_launch().value_or(tutti::Launch{});
  info.tcp_include = variable("OMPI_MCA_btl_tcp_if_include");
  info.tcp_exclude = variable("OMPI_MCA_btl_tcp_if_exclude");
  if (const std::string count = variable("SLURM_JOB_NUM_NODES"); !count.empty()) {
    std::istringstream(count) >> info.allocated_hosts;
  } else if (const std::string file = variable("PBS_NODEFILE"); !file.empty()) {
    std::ifstream list(file);
    std::set<std::string> hosts;
    for (std::string host; list >> host;) hosts.insert(host);
    info.allocated_hosts = static_cast<int>(hosts.size());
  }
}

void read_gpus(RankInfo& info) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", ignored)) {
    info.gpus += entry.exists(ignored) ? 1 : 0;
  }
  info.restricts_gpus = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  if (info.restricts_gpus) {
    info.my_gpus = split(variable("CUDA_VISIBLE_DEVICES"), ',');
  } else {
    for (int gpu = 0; gpu < info.gpus; ++gpu) info.my_gpus.push_back(std::to_string(gpu));
  }
  info.usable_gpus = tutti::num_gpus();
  try {
    info.gpu_text = tutti::describe_gpus();
  } catch (const tutti::Error& error) {
    info.gpu_text = std::string("none: ") + error.what();
  }
}

/// The folder itself if it exists, or the one in which the first save would make it.
std::string folder_to_try(const std::string& directory) {
  std::error_code error;
  const auto kind = std::filesystem::symlink_status(directory, error).type();
  if (kind != std::filesystem::file_type::not_found) return directory;
  return std::filesystem::absolute(directory + "/").parent_path().parent_path().string();
}

/// Finds out whether a checkpoint could be written in this folder, by writing a file.
void try_directory(RankInfo& info, const std::string& named) {
  if (named.empty()) return;
  const std::string directory = folder_to_try(named);
  struct stat status {};
  std::string probe = directory + "/.tutti-doctor-XXXXXX";
  const int file = mkostemp(probe.data(), O_CLOEXEC);  // does not follow a link of another user
  info.has_directory = file >= 0 && write(file, "probe", 5) == 5;
  if (!info.has_directory) info.directory_error = std::strerror(errno);
  if (file >= 0) {
    close(file);
    unlink(probe.c_str());
  }
  info.directory_free = free_of(directory.c_str());
  if (stat(directory.c_str(), &status) == 0) info.directory_device = std::to_string(status.st_dev);
}

}  // namespace

RankInfo collect_rank_info(const std::string& directory) {
  RankInfo info;
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  info.host = name.data();
  info.pid = getpid();
  read_processors(info);
  read_memory(info);
  find_stale_segments(info);
  read_environment(info);
  info.interfaces = interfaces_up();
  read_gpus(info);
  try_directory(info, directory);
  return info;
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Interface, name, network)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankInfo, rank, host, pid, library, mpi, mpi_of_build,
                                   world_size, thread_level, launch, settings, processors,
                                   host_processors, quota, load, memory, cgroup_memory, shm_free,
                                   has_memfd, huge_pages, address_space, open_files, file_bytes,
                                   processes, data_bytes, locked_bytes, stack_bytes, stale_segments,
                                   stale_bytes, interfaces, tcp_include, tcp_exclude,
                                   clock_offset_s, gpus, my_gpus, restricts_gpus, usable_gpus,
                                   gpu_text, has_directory, directory_error, directory_free,
                                   directory_device, allocated_hosts, node, why_unreadable)

std::string to_text(const RankInfo& info) { return nlohmann::json(info).dump(); }

RankInfo from_text(const std::string& text) { return nlohmann::json::parse(text).get<RankInfo>(); }

}  // namespace apps::doctor
