// SPDX-License-Identifier: Apache-2.0
// Sums of NCCL's types, for the fake one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <nccl.h>

#include "runtime/base/elements.hpp"

namespace fake_nccl {

inline std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

/// Rounds at every rank, as NCCL does at every hop.
template <class T>
void add(std::byte* sum, const std::byte* value, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    T left;
    T right;
    std::memcpy(&left, sum + i * sizeof left, sizeof left);
    std::memcpy(&right, value + i * sizeof right, sizeof right);
    if constexpr (tutti::elements::is_half<T>) {
      left = tutti::elements::rounded<T>(tutti::elements::widened(left) +
                                         tutti::elements::widened(right));
    } else {
      left = static_cast<T>(left + right);
    }
    std::memcpy(sum + i * sizeof left, &left, sizeof left);
  }
}

inline void add(ncclDataType_t type, std::byte* sum, const std::byte* value, std::size_t count) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return add<std::uint8_t>(sum, value, count);
    case ncclInt32:
      return add<std::uint32_t>(sum, value, count);
    case ncclInt64:
      return add<std::uint64_t>(sum, value, count);
    case ncclFloat16:
      return add<tutti::Float16>(sum, value, count);
    case ncclBfloat16:
      return add<tutti::BFloat16>(sum, value, count);
    case ncclFloat32:
      return add<float>(sum, value, count);
    case ncclFloat64:
      return add<double>(sum, value, count);
  }
}

}  // namespace fake_nccl
