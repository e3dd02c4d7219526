// SPDX-License-Identifier: Apache-2.0
// Lets one thread of a test find no memory for an array.
#pragma once

#include <cstddef>
#include <limits>

namespace test {

inline constexpr std::size_t kAnyArray = std::numeric_limits<std::size_t>::max();

/// From now on `new T[n]` throws std::bad_alloc on this thread for more bytes.
void set_most_of_array(std::size_t bytes);

}  // namespace test
