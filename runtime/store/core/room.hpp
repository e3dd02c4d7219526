// SPDX-License-Identifier: Apache-2.0
// Memory that stays from push to push. It grows by more than is needed, so that pushes of nearly
// equal size allocate nothing; growing loses its contents.
#pragma once

#include <cstddef>
#include <optional>

#include "tutti/tensor.hpp"

#include "runtime/job/group.hpp"

namespace tutti {

constexpr std::size_t aligned(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

template <class Allocate>
std::byte* room_by(Allocate allocate, std::size_t bytes, std::optional<Tensor>& memory) {
  if (!memory || memory->size_bytes() < bytes) {
    memory.reset();
    memory = allocate(Shape{static_cast<std::int64_t>(bytes + bytes / 4)});
  }
  return memory->bytes();
}

/// Room in the arena. Errors: out_of_memory.
inline std::byte* room_for(std::size_t bytes, std::optional<Tensor>& memory, Group& group) {
  return room_by([&](const Shape& shape) { return group.allocate(shape, DType::uint8); }, bytes,
                 memory);
}

/// Room on a device. Errors: out_of_memory.
inline std::byte* room_for(std::size_t bytes, std::optional<Tensor>& memory, Device device) {
  return room_by([&](const Shape& shape) { return Tensor::empty(shape, DType::uint8, device); },
                 bytes, memory);
}

}  // namespace tutti
