// SPDX-License-Identifier: Apache-2.0
// Whether the ranks' replicas are equal, as they should be.
#pragma once

#include <cstdint>

namespace tutti {

/// What ranks compare, with every push, of the replicas and optimizer states that it will change.
enum class Verify {
  off,
  sampled,  ///< a 256th of the bytes, in turn
  full,     ///< all of them, which reads them once more
};

struct VerifyResult {
  std::uint64_t bytes = 0;                  ///< of replicas and states that each rank compared
  std::uint64_t healed = 0;                 ///< chunks of 64 KiB that differed, now equal
  std::uint64_t healed_since_creation = 0;  ///< of the store, by pushes too
};

}  // namespace tutti
