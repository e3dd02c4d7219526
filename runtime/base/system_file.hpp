// SPDX-License-Identifier: Apache-2.0
// Functions for reading files of the kernel, such as those in /proc. They do not use streams, which
// read numbers as the program's locale writes them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// Returns the whole text; empty if there is no such file, or if it cannot be read.
std::string read_system_file(const std::string& path);

/// Split a text at line feeds or at blanks. The parts point into the text.
std::vector<std::string_view> lines_of(std::string_view text);
std::vector<std::string_view> words_of(std::string_view text);

/// Returns the first word; empty if there is none.
inline std::string_view first_word(std::string_view text) {
  const auto words = words_of(text);
  return words.empty() ? std::string_view() : words.front();
}

}  // namespace tutti
