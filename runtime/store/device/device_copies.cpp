// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/device/device_copies.hpp"

#include "collectives/leak.hpp"

namespace tutti {

bool DeviceCopies::add(const ConstTensorView& from, const TensorView& to) {
  const bool on_gpu = from.device().kind == DeviceKind::gpu;
  if (!on_gpu || from.device() != to.device() || from.dtype() != to.dtype()) return false;
  devices_[from.device().index].rows.push_back(
      {.inputs = {from.bytes()}, .output = to.bytes(), .count = to.count(), .dtype = to.dtype()});
  return true;
}

void DeviceCopies::run() {
  for (auto& [device, own] : devices_) {
    if (own.rows.empty()) continue;
    const auto gpus = gpus::require_gpus("pull", gpu(device));
    if (own.table == nullptr) own.table = gpus->kernels(device).make_table();
    gpus->kernels(device).sum(gpus->stream(device), *own.table, own.rows);
    own.rows.clear();
  }
}

void DeviceCopies::leak_until_exit() {
  collectives::leak_until_exit(std::make_shared<decltype(devices_)>(std::move(devices_)));
}

}  // namespace tutti
