// SPDX-License-Identifier: Apache-2.0
// Files in which the kernel says something. They are read without streams, which read numbers as
// the program's locale writes them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// The whole text; empty where there is no such file, or nothing to read.
std::string read_system_file(const std::string& path);

/// Parts between line feeds, and parts between blanks. They point into the text.
std::vector<std::string_view> lines_of(std::string_view text);
std::vector<std::string_view> words_of(std::string_view text);

/// The first word; empty if there is none.
inline std::string_view first_word(std::string_view text) {
  const auto words = words_of(text);
  return words.empty() ? std::string_view() : words.front();
}

}  // namespace tutti
