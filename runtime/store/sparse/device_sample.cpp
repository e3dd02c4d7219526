// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/sparse/device_sample.hpp"

#include <string_view>
#include <utility>

#include "collectives/job/leak.hpp"
#include "runtime/store/core/room.hpp"

namespace tutti {

void DeviceSample::prepare() {
  for (auto& [device, sample] : samples_) {
    room_for(std::exchange(sample.expected, 0), sample.rows, gpu(device));
  }
}

/// Adds bytes of a row. They are copied as bytes, so that rows of all types lie side by side
/// without gaps.
void DeviceSample::add(int device, const std::byte* bytes, std::size_t count) {
  GpuSample& sample = samples_.at(device);
  copies_.add(device, bytes, sample.rows->bytes() + sample.bytes, count, DType::uint8);
  pieces_.push_back({device, sample.bytes, count});
  sample.bytes += count;
}

void DeviceSample::settle(Digest& digest) {
  std::map<int, Tensor> fetched;
  for (auto& [device, sample] : samples_) {
    sample.expected = 0;  // rows that a refused push expected
    if (sample.bytes == 0) continue;
    const Shape shape{static_cast<std::int64_t>(sample.bytes)};
    Tensor& rows = fetched.emplace(device, Tensor::empty(shape, DType::uint8)).first->second;
    group_.copy(rows, ConstTensorView(sample.rows->bytes(), shape, DType::uint8, gpu(device)));
  }
  for (const Piece& piece : pieces_) {
    const std::byte* const bytes = fetched.at(piece.device).bytes() + piece.begin;
    digest.add(std::string_view(reinterpret_cast<const char*>(bytes), piece.bytes));
  }
  clear();
}

void DeviceSample::clear() {
  copies_.clear();
  for (auto& [device, sample] : samples_) sample.bytes = 0;
  pieces_.clear();
}

void DeviceSample::leak_until_exit() {
  collectives::leak_until_exit(std::make_shared<decltype(samples_)>(std::move(samples_)));
  copies_.leak_until_exit();
}

}  // namespace tutti
