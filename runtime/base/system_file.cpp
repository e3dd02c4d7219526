// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/system_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>

#include "runtime/base/unique_handle.hpp"

namespace tutti {

namespace {

std::vector<std::string_view> parts_between(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = text.find_first_not_of(separators); begin != std::string_view::npos;
       begin = text.find_first_not_of(separators, begin)) {
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return parts;
}

}  // namespace

std::string read_system_file(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  if (file.get() < 0) return text;
  std::array<char, 4096> block;
  while (true) {
    const ssize_t got = read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(block.data(), static_cast<std::size_t>(got));
  }
}

std::vector<std::string_view> lines_of(std::string_view text) { return parts_between(text, "\n"); }

std::vector<std::string_view> words_of(std::string_view text) {
  return parts_between(text, " \t\n");
}

}  // namespace tutti
