// SPDX-License-Identifier: Apache-2.0
// The files to which programs write their results.
#pragma once

#include <filesystem>
#include <string>

namespace apps {

/// Writes the whole text. Does nothing where the path is empty, because the option was not given.
/// Local. Errors  io: the file cannot be written, with its name and the system's reason.
void write_file(const std::filesystem::path& path, const std::string& text);

/// Called before long work: creates the file if it is missing, and leaves the content of another
/// alone.
/// Does nothing where the path is empty. Local. Errors  invalid_argument: it cannot be written.
void check_output_file(const std::filesystem::path& path);

}  // namespace apps
