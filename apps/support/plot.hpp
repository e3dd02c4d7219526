// SPDX-License-Identifier: Apache-2.0
// Pictures of results: plot.py draws the JSON that a program has written. The script is beside the
// other scripts, in the folder of the sources or where they are installed.
#pragma once

#include <filesystem>
#include <string>

namespace apps {

/// Called before long work: asks plot.py whether it can draw, unless `picture` is empty.
/// Local. Errors  invalid_argument: python3 or matplotlib is missing; the text says how to get it.
void check_plot(const std::filesystem::path& picture);

/// Draws the results of a program's --json; nothing if `picture` is empty. Local.
/// Errors  io: the script failed; the text names PICTURE.json, which then has the results.
void draw_plot(const std::filesystem::path& picture, const std::string& json);

}  // namespace apps
