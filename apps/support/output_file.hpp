// SPDX-License-Identifier: Apache-2.0
// The files that programs write their results to.
#pragma once

#include <filesystem>
#include <string>

namespace apps {

/// Writes the whole text; nothing where the path is empty, as that of an option that was not given.
/// Local. Errors  io: the file cannot be written, with its name and the system's reason.
void write_file(const std::filesystem::path& path, const std::string& text);

/// Before long work: creates the file if it is missing, and leaves the content of another alone.
/// Nothing where the path is empty. Local. Errors  invalid_argument: it cannot be written.
void check_output_file(const std::filesystem::path& path);

}  // namespace apps
