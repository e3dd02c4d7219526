// SPDX-License-Identifier: Apache-2.0
#include "apps/checkpoint/weights.hpp"

namespace apps::checkpoint {
namespace {

/// Another value for each of 2^24 neighbours, exact in float32, never zero.
float element(std::size_t key, std::size_t index) {
  constexpr std::size_t kValues = (std::size_t{1} << 24) - 1;
  return static_cast<float>((index + 7919 * key) % kValues + 1);
}

}  // namespace

Weights::Weights(tutti::KVStore& kv, const Options& options)
    : count_(options.bytes / sizeof(float) / static_cast<std::size_t>(options.keys)) {
  tutti::Tensor values = tutti::Tensor::zeros({static_cast<std::int64_t>(count_)});
  for (std::size_t key = 0; key < static_cast<std::size_t>(options.keys); ++key) {
    for (std::size_t i = 0; i < count_; ++i) values.values<float>()[i] = element(key, i);
    keys_.emplace_back(static_cast<std::int64_t>(key));
    kv.init(keys_.back(), values);
  }
}

void Weights::forget(tutti::KVStore& kv) const {
  const tutti::Tensor zeros = tutti::Tensor::zeros({static_cast<std::int64_t>(count_)});
  kv.push(keys_, std::vector<tutti::ConstTensorView>(keys_.size(), zeros));
}

std::int64_t Weights::wrong(const tutti::KVStore& kv) const {
  std::int64_t count = 0;
  for (std::size_t key = 0; key < keys_.size(); ++key) {
    const tutti::ConstTensorView stored = kv.view(keys_[key]);
    for (std::size_t i = 0; i < count_; ++i) {
      count += stored.values<float>()[i] == element(key, i) ? 0 : 1;
    }
  }
  return count;
}

}  // namespace apps::checkpoint
