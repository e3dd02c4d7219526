// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/cgroups.hpp"

#include <string_view>

#include "runtime/base/system_file.hpp"

namespace tutti {

namespace {

/// Adds `group` below `mount`, and the groups above it. In a container some of them may be missing,
/// and its own group is the topmost.
void add_with_parents(const std::string& mount, std::string group, int version,
                      std::vector<Cgroup>& found) {
  if (group == "/") group.clear();
  while (true) {
    found.push_back({mount + group, version});
    if (group.empty()) return;
    group.resize(group.find_last_of('/'));
  }
}

bool has_controller(std::string_view list, std::string_view controller) {
  return ("," + std::string(list) + ",").find("," + std::string(controller) + ",") !=
         std::string::npos;
}

}  // namespace

/// Each line of /proc/PID/cgroup is NUMBER:CONTROLLERS:GROUP; in version 2 the controllers are
/// empty. Version 1 is mounted under the list of controllers, and usually also under each single
/// one.
std::vector<Cgroup> cgroups_of(const std::string& controller, const std::string& groups,
                               const std::string& mounted) {
  std::vector<Cgroup> found;
  const std::string text = read_system_file(groups);
  for (const std::string_view line : lines_of(text)) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string_view::npos || line.substr(second + 1, 1) != "/") continue;
    const std::string controllers(line.substr(first + 1, second - first - 1));
    const std::string group(line.substr(second + 1));
    if (controllers.empty()) {
      add_with_parents(mounted, group, 2, found);
      add_with_parents(mounted + "/unified", group, 2, found);  // where version 1 is mounted, too
    } else if (has_controller(controllers, controller)) {
      add_with_parents(mounted + "/" + controller, group, 1, found);
      if (controllers != controller) {
        add_with_parents(mounted + "/" + controllers, group, 1, found);
      }
    }
  }
  return found;
}

}  // namespace tutti
