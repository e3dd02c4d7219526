// SPDX-License-Identifier: Apache-2.0
// Helpers of tests whose ranks have a fake GPU each.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"

#include "tests/support/checks.hpp"
#include "tests/support/fake_accelerator.hpp"
#include "tests/unit/threads.hpp"

namespace test {

inline const std::vector<std::vector<int>> kLayouts = {{1},    {2},    {3},       {1, 1},
                                                       {2, 2}, {1, 2}, {1, 1, 1}, {3, 3}};
inline const std::vector<std::vector<int>> kSmallLayouts = {{3}, {1, 2}, {2, 2}};

template <class T>
std::vector<T> pulled(const tutti::KVStore& kv, const tutti::Key& key, std::int64_t count) {
  tutti::Tensor out = tutti::Tensor::zeros({count}, tutti::dtype_of<T>);
  kv.pull(key, out);
  return {out.values<T>().begin(), out.values<T>().end()};
}

inline tutti::Tensor ramp(std::int64_t count, tutti::DType dtype, int rank, tutti::Device device) {
  tutti::Tensor tensor = tutti::Tensor::empty({count}, dtype, device);
  tensor.view().copy_from(tutti::Tensor::from(ramp_values(static_cast<std::size_t>(count), rank)));
  return tensor;
}

inline tutti::Tensor random_numbers_on(tutti::Device device, std::int64_t count, unsigned seed) {
  const auto numbers = random_values(static_cast<std::size_t>(count), seed);
  tutti::Tensor tensor = tutti::Tensor::empty({count}, tutti::DType::float32, device);
  tensor.view().copy_from(tutti::Tensor::from(std::span<const float>(numbers)));
  return tensor;
}

inline float first_of(const tutti::KVStore& kv, const tutti::Key& key, std::int64_t count) {
  tutti::Tensor out = tutti::Tensor::zeros({count});
  kv.pull(key, out);
  return out.values<float>()[0];
}

inline constexpr std::int64_t kElements = 100;

inline tutti::Tensor ones(tutti::Device device) {
  return tutti::Tensor::ones({kElements}, tutti::DType::float32, device);
}

/// A store with one key on each rank's own GPU, which all ranks have pushed once, and whose sum is
/// complete.
inline tutti::KVStore pushed_once(const tutti::Communicator& communicator) {
  auto kv = tutti::KVStore::create(communicator);
  const auto mine = tutti::gpu(communicator.rank());
  kv.init(1, tutti::Tensor::zeros({kElements}, tutti::DType::float32, mine));
  kv.push(1, ones(mine));
  tutti::synchronize(mine);
  kv.barrier();
  return kv;
}

/// Makes every rank push again and again. Before its second push rank 1 calls `spoil` with its GPU.
template <class Spoil>
Outcomes push_while(const std::vector<int>& layout, const tutti::Settings& settings, Spoil spoil) {
  return as_ranks(layout, settings, [&](tutti::Communicator& communicator) {
    auto kv = pushed_once(communicator);
    const auto mine = tutti::gpu(communicator.rank());
    const tutti::Tensor value = ones(mine);
    if (communicator.rank() == 1) spoil();
    kv.push(1, value);
    kv.push(1, value);
    tutti::synchronize(mine);  // with NCCL on one node, pushes return before their sums
  });
}

}  // namespace test
