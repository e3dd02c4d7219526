// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/launcher_files.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <unistd.h>

namespace tutti::mpi {

namespace {

namespace fs = std::filesystem;

constexpr int kMostParents = 16;  // shells and wrappers between the launcher and a rank

fs::path link_of(pid_t process, const char* name) {
  std::error_code error;
  return fs::read_symlink("/proc/" + std::to_string(process) + "/" + name, error);
}

/// Returns the parent of a process; 0 if none is visible.
pid_t parent_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(')');  // a name may contain blanks and parentheses
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(line.substr(name_end + 1));
  char state = 0;
  pid_t parent = 0;
  rest >> state >> parent;
  return rest ? parent : 0;
}

bool starts(MpiAbi abi, std::string_view program) {
  constexpr std::string_view kOpenMpi[] = {"orterun", "mpirun", "orted",
                                           "prterun", "prte",   "prted"};
  constexpr std::string_view kMpich[] = {"hydra_pmi_proxy", "hydra_bstrap_proxy"};
  const auto is_one = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), program) != std::end(names);
  };
  return abi == MpiAbi::openmpi ? is_one(kOpenMpi) : is_one(kMpich);
}

/// Returns the files that a process has mapped, which include its libraries.
std::vector<fs::path> files_of(pid_t process) {
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  std::vector<fs::path> files;
  for (std::string line; std::getline(maps, line);) {
    const auto begin = line.find('/');
    if (begin == std::string::npos) continue;
    fs::path file = line.substr(begin);
    if (files.empty() || files.back() != file) files.push_back(std::move(file));
  }
  return files;
}

/// True for a library of Open MPI or, for a launcher in the system's folder, for the system's C
/// library.
bool leads_to_mpi(const fs::path& file, bool is_of_system) {
  const std::string name = file.filename();
  const auto is_called = [&](const char* start) { return name.starts_with(start); };
  return is_called("libopen-rte.so") || is_called("libprrte.so") || is_called("libmpi.so") ||
         (is_of_system && is_called("libc.so"));
}

}  // namespace

std::vector<fs::path> folders_of_launcher(MpiAbi abi) {
  pid_t process = getppid();
  for (int i = 0; i < kMostParents && process > 1; ++i, process = parent_of(process)) {
    const fs::path program = link_of(process, "exe");
    if (!starts(abi, program.filename().string())) continue;
    if (link_of(process, "ns/mnt") != link_of(getpid(), "ns/mnt")) return {};
    const fs::path bin = program.parent_path();
    std::vector<fs::path> folders;
    for (const fs::path& file : files_of(process)) {
      if (leads_to_mpi(file, bin == "/usr/bin")) folders.push_back(file.parent_path());
    }
    for (const char* name : {"lib", "lib64"}) folders.push_back(bin.parent_path() / name);
    return folders;
  }
  return {};
}

}  // namespace tutti::mpi
