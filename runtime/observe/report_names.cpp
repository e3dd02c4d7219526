// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/report_names.hpp"

#include <atomic>

namespace tutti::observe {

std::string with_infix(const std::string& path, const std::string& infix) {
  const std::size_t slash = path.rfind('/');
  const std::size_t first = slash == std::string::npos ? 0 : slash + 1;
  const std::size_t point = path.rfind('.');
  if (point == std::string::npos || point <= first) return path + "." + infix;
  return path.substr(0, point) + "." + infix + path.substr(point);
}

std::string of_group(const std::string& path, int group) {
  return path.empty() || group == 0 ? path : with_infix(path, std::to_string(group));
}

/// As global as the files of a process are.
int next_group() noexcept {
  static std::atomic<int> groups{0};
  return groups++;
}

}  // namespace tutti::observe
