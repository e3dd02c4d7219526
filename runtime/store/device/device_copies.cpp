// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/device/device_copies.hpp"

#include "collectives/job/leak.hpp"

namespace tutti {

bool DeviceCopies::add(const ConstTensorView& from, const TensorView& to) {
  const bool on_gpu = from.device().kind == DeviceKind::gpu;
  if (!on_gpu || from.device() != to.device() || from.dtype() != to.dtype()) return false;
  add(from.device().index, from.bytes(), to.bytes(), to.count(), to.dtype());
  return true;
}

void DeviceCopies::add(int device, const std::byte* from, std::byte* to, std::size_t count,
                       DType dtype) {
  std::vector<gpus::TensorRow>& rows = devices_[device].rows;
  if (!rows.empty() && rows.back().dtype == dtype) {
    gpus::TensorRow& last = rows.back();
    const std::size_t bytes = last.count * size_of(dtype);
    if (from == last.inputs[0] + bytes && to == last.output + bytes) {
      last.count += count;
      return;
    }
  }
  rows.push_back({.inputs = {from}, .output = to, .count = count, .dtype = dtype});
}

void DeviceCopies::run() {
  for (auto& [device, own] : devices_) {
    if (own.rows.empty()) continue;
    const auto gpus = gpus::require_gpus("pull", gpu(device));
    gpus->require_stream(device);
    if (own.table == nullptr) own.table = gpus->kernels(device).make_table();
    gpus->kernels(device).sum(gpus->stream(device), *own.table, own.rows);
    own.rows.clear();
  }
}

void DeviceCopies::clear() {
  for (auto& [device, own] : devices_) own.rows.clear();
}

void DeviceCopies::leak_until_exit() {
  collectives::leak_until_exit(std::make_shared<decltype(devices_)>(std::move(devices_)));
}

}  // namespace tutti
