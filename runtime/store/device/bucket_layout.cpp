// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/device/bucket_layout.hpp"

#include <algorithm>
#include <initializer_list>
#include <numeric>

#include "runtime/gpu_sum/reducer.hpp"

namespace tutti {

namespace {

constexpr std::initializer_list<DType> kDTypes = {DType::float16, DType::bfloat16, DType::float32,
                                                  DType::float64, DType::int8,     DType::uint8,
                                                  DType::int32,   DType::int64};

std::size_t rounded(std::size_t bytes, std::size_t unit = gpus::kGrain) {
  return (bytes + unit - 1) / unit * unit;
}

std::size_t bytes_of(const gpus::TensorRow& key) { return key.count * size_of(key.dtype); }

/// The bytes of all keys, if they are laid out as small ones.
std::size_t bytes_as_small(std::span<const gpus::TensorRow> keys, std::size_t unit) {
  std::size_t bytes = 0;
  for (const DType dtype : kDTypes) {
    std::size_t of_type = 0;
    for (const gpus::TensorRow& key : keys) {
      if (key.dtype == dtype) of_type += rounded(bytes_of(key));
    }
    bytes += rounded(of_type, unit);
  }
  return bytes;
}

}  // namespace

BucketLayout::BucketLayout(std::size_t num_keys) : rounds_(1) {
  rounds_[0].keys.resize(num_keys);
  std::iota(rounds_[0].keys.begin(), rounds_[0].keys.end(), 0);
}

BucketLayout::BucketLayout(std::span<const gpus::TensorRow> keys, const LayoutTraits& traits)
    : sums_(keys.size()) {
  reads_peer_windows_ = traits.peer_window_bytes > 0 && traits.use != SumUse::call_updater &&
                        bytes_as_small(keys, traits.unit) <= traits.peer_window_bytes;
  if (traits.takes_inputs && !reads_peer_windows_) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      sums_[i].is_large = bytes_of(keys[i]) >= kLargeBytes;
    }
  }
  const std::size_t small_bytes = lay_out_small(keys, traits);
  bucket_bytes_ = reads_peer_windows_ ? 0 : small_bytes;
  const std::size_t num_small_sums = rank_sums_.size();
  place_large(keys, traits);
  add_large_sums(keys);
  cut_rounds(num_small_sums);
}

/// Lays out small keys by type, so that each type is one sum over the ranks. A key's sum begins at
/// a multiple of the grain. All ranks have one layout of small keys.
std::size_t BucketLayout::lay_out_small(std::span<const gpus::TensorRow> keys,
                                        const LayoutTraits& traits) {
  const Memory memory = reads_peer_windows_ ? Memory::peer_window : Memory::bucket;
  std::size_t end = 0;
  for (const DType dtype : kDTypes) {
    const std::size_t begin = end;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i].dtype != dtype || sums_[i].is_large) continue;
      sums_[i].memory = memory;
      sums_[i].offset = end;
      launch(i);
      end += rounded(bytes_of(keys[i]));
    }
    if (end == begin) continue;
    end = begin + rounded(end - begin, traits.unit);
    rank_sums_.push_back({.memory = memory,
                          .offset = begin,
                          .count = (end - begin) / size_of(dtype),
                          .dtype = dtype});
  }
  return end;
}

/// Places large keys behind the small ones: in the window of the rounds, if there are rounds, and
/// else, or where a launch sums several values beforehand, behind that window. A key's round is the
/// same on all ranks, but its place in the bucket is not: another rank may have one value where
/// this one has several.
void BucketLayout::place_large(std::span<const gpus::TensorRow> keys, const LayoutTraits& traits) {
  const bool has_rounds = traits.use == SumUse::update;
  std::size_t round = 0;
  std::size_t round_end = 0;
  std::size_t window_bytes = 0;
  std::vector<std::size_t> apart;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    KeySum& sum = sums_[i];
    if (!sum.is_large) continue;
    if (traits.use == SumUse::assign) {
      sum.memory = Memory::replica;
      continue;
    }
    const std::size_t bytes = rounded(bytes_of(keys[i]));
    if (has_rounds) {
      if (round_end > 0 && round_end + bytes > kRoundBytes) {
        ++round;
        round_end = 0;
      }
      sum.round = round;
      sum.offset = bucket_bytes_ + round_end;
      round_end += bytes;
      window_bytes = std::max(window_bytes, round_end);
    }
    if (!has_rounds || keys[i].num_inputs > 1) apart.push_back(i);
  }
  bucket_bytes_ += window_bytes;
  for (const std::size_t i : apart) {
    sums_[i].offset = bucket_bytes_;
    bucket_bytes_ += rounded(bytes_of(keys[i]));
  }
}

void BucketLayout::add_large_sums(std::span<const gpus::TensorRow> keys) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    KeySum& sum = sums_[i];
    if (!sum.is_large) continue;
    if (keys[i].num_inputs > 1) {
      launch(i);
    } else {
      sum.is_launched = false;
      sum.index = rank_sums_.size();
    }
    rank_sums_.push_back({.memory = sum.memory,
                          .offset = sum.offset,
                          .count = keys[i].count,
                          .dtype = keys[i].dtype,
                          .large_key = i,
                          .is_large = true});
  }
}

void BucketLayout::launch(std::size_t key) {
  sums_[key].is_launched = true;
  sums_[key].index = launched_.size();
  launched_.push_back(key);
}

void BucketLayout::cut_rounds(std::size_t num_small_sums) {
  rounds_.resize(1);
  rounds_[0].num_rank_sums = num_small_sums;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const KeySum& sum = sums_[i];
    if (sum.round >= rounds_.size()) rounds_.resize(sum.round + 1);
    if (sum.is_large) ++rounds_[sum.round].num_rank_sums;
    if (sum.memory != Memory::replica) rounds_[sum.round].keys.push_back(i);
  }
}

}  // namespace tutti
