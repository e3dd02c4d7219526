// SPDX-License-Identifier: Apache-2.0
// A folder for a test's files.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace test {

/// A new and empty folder, which is removed with its content at the end of the scope.
class ScratchFolder {
 public:
  explicit ScratchFolder(
      const std::filesystem::path& place = std::filesystem::temp_directory_path()) {
    const std::string place_of_letters(6, 'X');  // mkdtemp replaces them
    std::string name = place / ("tutti_test." + place_of_letters);
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace test
