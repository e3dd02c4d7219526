// SPDX-License-Identifier: Apache-2.0
// The names of the files that reports go to.
#pragma once

#include <string>

namespace tutti::observe {

/// "dir/tutti.3.prom" of "dir/tutti.prom" and "3": before the last point of the file's name.
std::string with_infix(const std::string& path, const std::string& infix);

/// The same name for the first group of a process; "tutti.1.prom" for the second, and so on.
std::string of_group(const std::string& path, int group);

/// How many groups this process has made reports for before; counts this one.
int next_group() noexcept;

}  // namespace tutti::observe
