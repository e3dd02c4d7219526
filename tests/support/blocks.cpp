// SPDX-License-Identifier: Apache-2.0
#include "tests/support/blocks.hpp"

#include <algorithm>

namespace test {

namespace {

constexpr std::int64_t kUntouched = -7;

std::int64_t element_of(int from, int to, std::size_t place) {
  return (std::int64_t{from} * 1009 + to) * 10'000'019 + static_cast<std::int64_t>(place);
}

}  // namespace

void fill_block(std::span<std::int64_t> block, int from, int to) {
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = element_of(from, to, i);
}

bool is_block(std::span<const std::int64_t> block, int from, int to) {
  for (std::size_t i = 0; i < block.size(); ++i) {
    if (block[i] != element_of(from, to, i)) return false;
  }
  return true;
}

tutti::Tensor numbers(tutti::Communicator& comm, bool shared, std::size_t count) {
  const tutti::Shape shape{static_cast<std::int64_t>(count)};
  const auto dtype = tutti::DType::int64;
  tutti::Tensor tensor = shared ? comm.allocate(shape, dtype) : tutti::Tensor::empty(shape, dtype);
  std::ranges::fill(tensor.values<std::int64_t>(), kUntouched);
  return tensor;
}

bool is_untouched(const tutti::Tensor& tensor) {
  return std::ranges::all_of(tensor.values<std::int64_t>(),
                             [](std::int64_t value) { return value == kUntouched; });
}

}  // namespace test
