// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/sparse/device_sample.hpp"

#include <string_view>
#include <utility>

#include "collectives/job/leak.hpp"
#include "runtime/store/core/room.hpp"

namespace tutti {

void DeviceSample::prepare() {
  for (auto& [device, part] : parts_) {
    room_for(std::exchange(part.expected, 0), part.rows, gpu(device));
  }
}

/// As bytes, so that rows of all types lie side by side without gaps.
void DeviceSample::add(int device, const std::byte* bytes, std::size_t count) {
  Part& part = parts_.at(device);
  copies_.add(device, bytes, part.rows->bytes() + part.bytes, count, DType::uint8);
  pieces_.push_back({device, part.bytes, count});
  part.bytes += count;
}

void DeviceSample::settle(Digest& digest) {
  std::map<int, Tensor> fetched;
  for (auto& [device, part] : parts_) {
    part.expected = 0;  // by a push that was refused
    if (part.bytes == 0) continue;
    const Shape shape{static_cast<std::int64_t>(part.bytes)};
    Tensor& rows = fetched.emplace(device, Tensor::empty(shape, DType::uint8)).first->second;
    group_.copy(rows, ConstTensorView(part.rows->bytes(), shape, DType::uint8, gpu(device)));
  }
  for (const Piece& piece : pieces_) {
    const std::byte* const bytes = fetched.at(piece.device).bytes() + piece.begin;
    digest.add(std::string_view(reinterpret_cast<const char*>(bytes), piece.bytes));
  }
  clear();
}

void DeviceSample::clear() {
  copies_.clear();
  for (auto& [device, part] : parts_) part.bytes = 0;
  pieces_.clear();
}

void DeviceSample::leak_until_exit() {
  collectives::leak_until_exit(std::make_shared<decltype(parts_)>(std::move(parts_)));
  copies_.leak_until_exit();
}

}  // namespace tutti
