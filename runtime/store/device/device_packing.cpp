// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/device/device_packing.hpp"

#include <utility>

#include "collectives/job/leak.hpp"
#include "runtime/store/core/room.hpp"

namespace tutti {

namespace {

using gpus::Packing;

/// The kernels' packing for a compression; none if they have no such packing.
struct PackingOf {
  using Found = std::optional<Packing>;
  Found operator()(const compression::TwoBit& options) const {
    return Packing{Packing::Format::two_bit, static_cast<float>(options.threshold)};
  }
  Found operator()(const compression::OneBit& options) const {
    return Packing{Packing::Format::one_bit, static_cast<float>(options.threshold)};
  }
  Found operator()(const compression::Float16& /*options*/) const {
    return Packing{Packing::Format::float16};
  }
  Found operator()(const compression::BFloat16& /*options*/) const {
    return Packing{Packing::Format::bfloat16};
  }
  Found operator()(const compression::TopK& /*options*/) const { return std::nullopt; }
  Found operator()(const compression::None& /*options*/) const { return std::nullopt; }
};

std::optional<Packing> packing_of(const GradientCompression& compression) {
  return std::visit(PackingOf(), compression.options());
}

}  // namespace

bool DevicePacking::is_on() const {
  return compression_.codec_of(compression::Leg::all) != nullptr && packing_of(compression_);
}

void DevicePacking::clear() {
  runs_.clear();
  bytes_ = 0;
  for (auto& [device, work] : work_) {
    work.rows.clear();
    work.places.clear();
  }
}

std::byte* DevicePacking::residual_of(Entry& entry) {
  const Device device = entry.replica.device();
  std::optional<Tensor>& residual = entry.residual;
  if (!residual) residual = Tensor::zeros(entry.shape(), DType::float32, device);
  if (residual->device() != device) {
    Tensor moved = Tensor::empty(entry.shape(), DType::float32, device);
    group_.copy(moved, *residual);
    residual = std::move(moved);
  }
  return residual->bytes();
}

void DevicePacking::add(Entry& entry, const gpus::TensorRow& values) {
  if (values.count == 0) return;  // it has no residual, as on the CPU
  const collectives::Codec& codec = *compression_.codec_of(compression::Leg::all);
  const int device = entry.replica.device().index;
  const std::size_t bytes = codec.packed_bytes(values.count);
  PackedKeys& work = work_[device];
  work.rows.push_back(values);
  work.rows.back().states = {codec.has_residual() ? residual_of(entry) : nullptr};
  work.places.push_back(bytes_);
  if (runs_.empty() || runs_.back().device != device) runs_.push_back({device, bytes_, 0});
  runs_.back().bytes += bytes;
  bytes_ += bytes;
}

void DevicePacking::pack() {
  for (auto& [device, work] : work_) {
    if (work.rows.empty()) continue;
    gpus_ = gpus::require_gpus("push", gpu(device));
    gpus::Kernels& kernels = gpus_->kernels(device);
    if (work.table == nullptr) work.table = kernels.make_table();
    std::byte* const packed = room_for(bytes_, work.packed, gpu(device));
    for (std::size_t i = 0; i < work.rows.size(); ++i) {
      work.rows[i].output = packed + work.places[i];
    }
    kernels.pack(gpus_->stream(device), *work.table, work.rows, *packing_of(compression_));
  }
}

void DevicePacking::bring(std::byte* packed) {
  for (const Run& run : runs_) {
    const Shape shape{static_cast<std::int64_t>(run.bytes)};
    const std::byte* const from = work_.at(run.device).packed->bytes() + run.begin;
    group_.copy(TensorView(packed + run.begin, shape, DType::uint8),
                ConstTensorView(from, shape, DType::uint8, gpu(run.device)));
  }
}

void DevicePacking::feed_back() {
  for (auto& [device, work] : work_) {
    if (work.rows.empty()) continue;
    gpus_->kernels(device).feed_back(gpus_->stream(device), *work.table, work.rows,
                                     *packing_of(compression_));
  }
}

void DevicePacking::leak_until_exit() {
  collectives::leak_until_exit(std::make_shared<decltype(work_)>(std::move(work_)));
}

}  // namespace tutti
