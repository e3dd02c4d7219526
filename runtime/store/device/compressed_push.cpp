// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/device/compressed_push.hpp"

namespace tutti {

TensorView CompressedPush::view_of(std::byte* memory, std::size_t bytes, Device device) {
  return {memory, {static_cast<std::int64_t>(bytes)}, DType::uint8, device};
}

void CompressedPush::clear() {
  segments_.clear();
  packing_.clear();
  for (auto& [device, bucket] : buckets_) bucket.bytes = 0;
}

void CompressedPush::take_bucket(int device, std::byte* memory, std::size_t bytes) {
  Bucket& bucket = buckets_[device];
  if (!bucket.host || bucket.host->size_bytes() < bytes) {
    bucket.host.reset();
    bucket.host = group_.allocate({static_cast<std::int64_t>(bytes)}, DType::uint8);
  }
  bucket.begin = memory;
  bucket.bytes = bytes;
  if (packs_on_gpu()) return;
  group_.copy(view_of(bucket.host->bytes(), bytes, cpu()), view_of(memory, bytes, gpu(device)));
}

/// Adds a key, whose sum over the ranks takes the place of its gradient.
void CompressedPush::add(Entry& entry, const std::byte* place, const gpus::TensorRow& values) {
  Bucket& bucket = buckets_.at(entry.replica.device().index);
  std::byte* const memory = bucket.host->bytes() + (place - bucket.begin);
  segments_.push_back(
      {.input = memory, .output = memory, .count = values.count, .dtype = DType::float32});
  if (packs_on_gpu()) packing_.add(entry, values);
}

void CompressedPush::stage(std::span<Entry* const> entries) {
  if (!packs_on_gpu()) return compressed_sum_.stage(entries, segments_, /*consumer=*/nullptr);
  packing_.pack();
  packing_.bring(compressed_sum_.stage_packed(entries, segments_));
}

void CompressedPush::sum(collectives::Operation operation, std::span<Entry* const> entries) {
  operation.segments = segments_;
  compressed_sum_.apply(operation);
  group_.engine().run(operation);
  compressed_sum_.commit(entries);
}

void CompressedPush::finish() {
  if (packs_on_gpu()) packing_.feed_back();
  for (auto& [device, bucket] : buckets_) {
    if (bucket.bytes == 0) continue;
    group_.copy(view_of(bucket.begin, bucket.bytes, gpu(device)),
                view_of(bucket.host->bytes(), bucket.bytes, cpu()));
  }
}

}  // namespace tutti
