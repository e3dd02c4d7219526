// SPDX-License-Identifier: Apache-2.0
// Whether the ranks' replicas are equal, as they should be.
#pragma once

#include <cstdint>

namespace tutti {

/// What ranks compare with each push of keys on the CPU, of the replicas and states it changes.
enum class Verify {
  off,
  sampled,  ///< a 256th of the bytes of the keys that are pushed, in turn
  full,     ///< all of these bytes, which reads them once more
};

struct VerifyResult {
  std::uint64_t bytes = 0;                  ///< replicas and states that each rank compared
  std::uint64_t healed = 0;                 ///< chunks of 64 KiB that differed, now equal
  std::uint64_t healed_since_creation = 0;  ///< since the store was made, by pushes too
};

}  // namespace tutti
