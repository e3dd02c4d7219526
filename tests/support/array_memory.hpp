// SPDX-License-Identifier: Apache-2.0
// Makes one thread of a test find no memory for an array.
#pragma once

#include <cstddef>
#include <limits>

namespace test {

inline constexpr std::size_t kAnyArray = std::numeric_limits<std::size_t>::max();

/// From now on `new T[n]` of more than so many bytes throws std::bad_alloc on this thread.
void set_most_of_array(std::size_t bytes);

}  // namespace test
