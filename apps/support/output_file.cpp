// SPDX-License-Identifier: Apache-2.0
#include "support/output_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <tutti/error.hpp>

#include "support/command_line.hpp"

namespace apps {

void write_file(const std::filesystem::path& path, const std::string& text) {
  if (path.empty()) return;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return;
  throw tutti::Error(tutti::ErrorCode::io,
                     path.string() + ": cannot be written: " + std::strerror(errno));
}

void check_output_file(const std::filesystem::path& path) {
  if (path.empty() || std::ofstream(path, std::ios::app)) return;
  throw_usage_error(path.string() + ": cannot be written: " + std::strerror(errno));
}

}  // namespace apps
