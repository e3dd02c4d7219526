// SPDX-License-Identifier: Apache-2.0
// The sum over ranks of what is on their GPUs.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "tutti/dtype.hpp"

namespace tutti::gpus {

/// Elements of one type, side by side in memory of a GPU: aligned to kGrain, and padded to a
/// multiple of kGrain for every local rank. What the padding holds does not matter.
struct Part {
  std::byte* data;
  std::size_t count;
  DType dtype;
};

/// Bytes; a multiple of every element's size.
inline constexpr std::size_t kGrain = 256;

class Reducer {
 public:
  virtual ~Reducer() = default;

  /// Sums every part over all ranks, in place, in the order of the device's stream. Returns when
  /// all messages are through; the last copies to the device may still be in the stream.
  /// Collective: all ranks have agreed that they make this call with equal counts and dtypes.
  /// Errors: timeout, communication: the group has failed on all ranks.
  virtual void allreduce(std::span<const Part> parts) = 0;

  /// "by way of the host": for logs.
  [[nodiscard]] virtual std::string describe() const = 0;
};

}  // namespace tutti::gpus
