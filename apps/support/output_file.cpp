// SPDX-License-Identifier: Apache-2.0
#include "support/output_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <tutti/error.hpp>

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

}  // namespace apps
