// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace apps {

/// "8 B", "1 KiB", "1.5 MiB": powers of 1024, at most one decimal.
std::string bytes_text(double bytes);

}  // namespace apps
