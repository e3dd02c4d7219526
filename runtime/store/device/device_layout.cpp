// SPDX-License-Identifier: Apache-2.0
// Where a push on GPUs puts what it sums: small keys end to end in a bucket or, if all of them fit,
// in memory that all ranks' kernels read; large ones behind them or in rounds of a window.
#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "runtime/store/device/device_push.hpp"

namespace tutti {

namespace {

constexpr std::initializer_list<DType> kDTypes = {DType::float16, DType::bfloat16, DType::float32,
                                                  DType::float64, DType::int8,     DType::uint8,
                                                  DType::int32,   DType::int64};

std::size_t rounded(std::size_t bytes, std::size_t unit = gpus::kGrain) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

/// A reducer that takes values from where they are spares a large key the copy into the bucket. The
/// same on all ranks.
bool DevicePush::is_laid_out_directly(const Work& work, const gpus::TensorRow& row) const {
  constexpr std::size_t kLarge = std::size_t{1} << 20;
  return traits_.takes_inputs && !work.reads_windows && row.count * size_of(row.dtype) >= kLarge;
}

/// Whether updates sum over the ranks themselves: not for an updater, which is given a sum. The
/// same on all ranks.
bool DevicePush::fits_windows(const Work& work) const {
  if (traits_.window_bytes == 0 || rule_.updater() != nullptr) return false;
  std::size_t bytes = 0;
  for (const DType dtype : kDTypes) {
    std::size_t of_type = 0;
    for (const gpus::TensorRow& row : work.updates) {
      if (row.dtype == dtype) of_type += rounded(row.count * size_of(dtype));
    }
    bytes += rounded(of_type, gpus::kGrain * group_.topology().largest_node());
  }
  return bytes <= traits_.window_bytes;
}

/// The rows of updates, which would read the sums in this rank's window, sum those of all ranks.
void DevicePush::read_windows(int device, Work& work) {
  const std::span<std::byte* const> windows = sum_over_ranks_.windows(device);
  for (gpus::TensorRow& row : work.updates) {
    const std::ptrdiff_t offset = row.inputs[0] - sum_over_ranks_.own_window(device);
    for (std::size_t rank = 0; rank < windows.size(); ++rank) {
      row.inputs[rank] = windows[rank] + offset;
    }
    row.num_inputs = static_cast<int>(windows.size());
    row.in_tree = true;
  }
}

/// With a scaler all sums are there before the first update; an updater is given them.
bool DevicePush::has_window() const {
  return traits_.takes_inputs && rule_.optimizer() != nullptr && rule_.scaler == nullptr;
}

/// What is assigned is summed into the replica, and there is nothing left to update.
bool DevicePush::assigns() const {
  return rule_.optimizer() == nullptr && rule_.updater() == nullptr;
}

void DevicePush::lay_out(int device, Work& work) {
  work.parts.clear();
  work.sums.clear();
  work.summed.assign(work.entries.size(), {});
  work.reads_windows = fits_windows(work);
  lay_out_bucket(device, work);
  if (work.reads_windows) return read_windows(device, work);
  if (!assigns()) return;
  std::vector<gpus::TensorRow> left;
  for (const gpus::TensorRow& row : work.updates) {
    if (!is_laid_out_directly(work, row)) left.push_back(row);
  }
  work.updates = std::move(left);
}

/// A row that sums values into the bucket, from where the update reads them.
void DevicePush::add_sum(Work& work, std::size_t i, std::byte* to) {
  work.summed[i] = {to, static_cast<std::int64_t>(work.sums.size()), -1};
  work.sums.push_back(work.updates[i]);
  work.sums.back().output = to;
  work.updates[i].inputs = {to};
  work.updates[i].num_inputs = 1;
}

/// Orders the sums by type, so that each type is one part, then the large keys, each a part. A
/// key's sum begins at a multiple of the grain. All ranks have one layout, but for large keys.
void DevicePush::lay_out_bucket(int device, Work& work) {
  const std::size_t unit = gpus::kGrain * group_.topology().largest_node();
  const LargeSums large = large_sums(work);
  std::size_t small_bytes = kDTypes.size() * unit;
  for (const gpus::TensorRow& row : work.updates) {
    if (!is_laid_out_directly(work, row)) small_bytes += rounded(row.count * size_of(row.dtype));
  }
  std::byte* place = nullptr;
  if (work.reads_windows) place = sum_over_ranks_.own_window(device);
  const std::size_t bytes = (place == nullptr ? small_bytes : 0) + large.bytes;
  const bool is_much_larger = work.bucket && may_shrink_ && work.bucket->size_bytes() > 2 * bytes;
  if (!work.bucket || work.bucket->size_bytes() < bytes || is_much_larger) {
    work.bucket.reset();
    work.bucket = Tensor::zeros({static_cast<std::int64_t>(bytes)}, DType::uint8, gpu(device));
  }
  if (place == nullptr) place = work.bucket->bytes();
  for (const DType dtype : kDTypes) {
    std::byte* const begin = place;
    for (std::size_t i = 0; i < work.updates.size(); ++i) {
      const gpus::TensorRow& row = work.updates[i];
      if (row.dtype != dtype || is_laid_out_directly(work, row)) continue;
      const std::size_t size = rounded(row.count * size_of(dtype));
      add_sum(work, i, place);
      place += size;
    }
    if (place == begin) continue;
    place = begin + rounded(static_cast<std::size_t>(place - begin), unit);
    work.parts.push_back({begin, static_cast<std::size_t>(place - begin) / size_of(dtype), dtype});
  }
  const std::size_t num_small = work.parts.size();
  lay_out_large(large, work.bucket->bytes() + (bytes - large.bytes), work);
  work.rounds.cut(gpus_->kernels(device), num_small, large.round, large.is_large);
}

/// In the window, if there is one, and else, or where a launch sums several values beforehand,
/// behind it. Which round a key is in is the same on all ranks, where in the bucket is not: another
/// rank may have one value where this one has several.
DevicePush::LargeSums DevicePush::large_sums(const Work& work) const {
  const std::size_t num_keys = work.updates.size();
  LargeSums large{std::vector<std::size_t>(num_keys), std::vector<std::size_t>(num_keys),
                  std::vector<bool>(num_keys), 0};
  SumWindow window;
  std::vector<std::size_t> apart;
  for (std::size_t i = 0; i < num_keys; ++i) {
    const gpus::TensorRow& row = work.updates[i];
    large.is_large[i] = is_laid_out_directly(work, row);
    if (!large.is_large[i] || assigns()) continue;
    if (has_window()) {
      const SumWindow::Place place = window.add(rounded(row.count * size_of(row.dtype)));
      large.round[i] = place.round;
      large.offset[i] = place.begin;
    }
    if (!has_window() || row.num_inputs > 1) apart.push_back(i);
  }
  large.bytes = window.bytes();
  for (const std::size_t i : apart) {
    large.offset[i] = large.bytes;
    large.bytes += rounded(work.updates[i].count * size_of(work.updates[i].dtype));
  }
  return large;
}

/// A part each. What is assigned is summed into the replica.
void DevicePush::lay_out_large(const LargeSums& large, std::byte* place, Work& work) {
  for (std::size_t i = 0; i < work.updates.size(); ++i) {
    gpus::TensorRow& row = work.updates[i];
    if (!large.is_large[i]) continue;
    std::byte* const to = assigns() ? row.output : place + large.offset[i];
    work.parts.push_back({to, row.count, row.dtype, row.inputs[0]});
    if (row.num_inputs > 1) {
      work.parts.back().from = nullptr;
      add_sum(work, i, to);
    } else {
      work.summed[i] = {to, -1, static_cast<std::int64_t>(work.parts.size()) - 1};
      row.inputs = {to};
    }
  }
}

}  // namespace tutti
