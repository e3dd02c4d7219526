// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/device/device_squares.hpp"

#include <algorithm>
#include <string>

#include "tutti/error.hpp"

namespace tutti {

DeviceSquares::DeviceSquares(std::shared_ptr<gpus::Gpus> gpus, int device)
    : gpus_(std::move(gpus)),
      device_(device),
      table_(gpus_->kernels(device).make_table()),
      copied_({&gpus_->accelerator(), gpus_->accelerator().create_event(device)}) {}

void DeviceSquares::prepare(std::span<const gpus::TensorRow> rows) {
  if (room_ < rows.size()) {
    const std::size_t bytes = std::max<std::size_t>(rows.size() * sizeof(double), 4096);
    std::byte* const memory = gpus_->accelerator().allocate_pinned(device_, bytes);
    if (memory == nullptr) {
      throw Error(ErrorCode::out_of_memory,
                  "cannot pin " + std::to_string(bytes) +
                      " bytes of the host's memory for the norm of the gradients on " +
                      to_string(gpu(device_)) + "; raise the limit of locked memory (ulimit -l)");
    }
    results_ = UniqueHandle<PinnedTraits>({&gpus_->accelerator(), memory});
    room_ = bytes / sizeof(double);
  }
  gpus_->kernels(device_).squares(gpus_->stream(device_), *table_, rows, nullptr);
}

void DeviceSquares::launch(std::span<const gpus::TensorRow> rows) {
  const gpus::Stream stream = gpus_->stream(device_);
  gpus_->kernels(device_).squares(stream, *table_, rows, results());
  gpus_->accelerator().record(copied_.get().event, device_, stream);
  count_ = rows.size();
}

std::span<const double> DeviceSquares::values() const { return {results(), count_}; }

}  // namespace tutti
