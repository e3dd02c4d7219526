// SPDX-License-Identifier: Apache-2.0
// The comparison of the ranks' replicas, which should be equal.
#pragma once

#include <cstdint>

namespace tutti {

/// How much of the replicas and states that a push changes is compared between ranks, for keys on
/// the CPU.
enum class Verify {
  off,
  sampled,  ///< a 256th of the bytes of the keys that are pushed, in turn
  full,     ///< all of these bytes, which reads them once more
};

struct VerifyResult {
  std::uint64_t bytes = 0;                  ///< replicas and states that each rank compared
  std::uint64_t healed = 0;                 ///< chunks of 64 KiB that differed, now equal
  std::uint64_t healed_since_creation = 0;  ///< chunks healed since creation, by pushes too
};

}  // namespace tutti
