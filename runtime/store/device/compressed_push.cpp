// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/device/compressed_push.hpp"

namespace tutti {

TensorView CompressedPush::view_of(std::byte* memory, std::size_t bytes, Device device) {
  return {memory, {static_cast<std::int64_t>(bytes)}, DType::uint8, device};
}

void CompressedPush::clear() {
  segments_.clear();
  for (auto& [device, bucket] : buckets_) bucket.bytes = 0;
}

void CompressedPush::bring(int device, std::byte* memory, std::size_t bytes) {
  Bucket& bucket = buckets_[device];
  if (!bucket.host || bucket.host->size_bytes() < bytes) {
    bucket.host.reset();
    bucket.host = group_.allocate({static_cast<std::int64_t>(bytes)}, DType::uint8);
  }
  bucket.begin = memory;
  bucket.bytes = bytes;
  group_.copy(view_of(bucket.host->bytes(), bytes, cpu()), view_of(memory, bytes, gpu(device)));
}

/// The sum takes the gradient's place.
void CompressedPush::add(int device, const std::byte* place, std::size_t count) {
  Bucket& bucket = buckets_.at(device);
  std::byte* const memory = bucket.host->bytes() + (place - bucket.begin);
  segments_.push_back({.input = memory, .output = memory, .count = count, .dtype = DType::float32});
}

void CompressedPush::sum(collectives::Operation operation) {
  operation.segments = segments_;
  compressed_sum_.apply(operation);
  group_.engine().run(operation);
}

void CompressedPush::return_sums() {
  for (auto& [device, bucket] : buckets_) {
    if (bucket.bytes == 0) continue;
    group_.copy(view_of(bucket.begin, bucket.bytes, gpu(device)),
                view_of(bucket.host->bytes(), bucket.bytes, cpu()));
  }
}

}  // namespace tutti
