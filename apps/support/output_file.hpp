// SPDX-License-Identifier: Apache-2.0
// The files to which programs write their results.
#pragma once

#include <filesystem>
#include <string>

namespace apps {

/// Writes the whole text. Does nothing where the path is empty, because the option was not given.
/// A regular file is replaced in one step: its text is the old one or the whole new one. A device,
/// a pipe and what a link leads to are written to, and stay what they are.
/// Local. Errors  io: the file cannot be written, with its name and the system's reason.
void write_file(const std::filesystem::path& path, const std::string& text);

/// Called before long work: looks whether the file can be written, and leaves it as it is.
/// Does nothing where the path is empty. Local. Errors  invalid_argument: it cannot be written.
void check_output_file(const std::filesystem::path& path);

}  // namespace apps
