// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/dense/compressed_sum.hpp"

namespace tutti {

using compression::Leg;

bool CompressedSum::is_on() const {
  const bool is_between = compression_.codec_of(Leg::between) != nullptr;
  return compression_.codec_of(Leg::all) != nullptr ||
         (is_between && group_.topology().num_nodes() > 1);
}

void CompressedSum::stage(std::span<Entry* const> entries,
                          std::span<const collectives::Segment> segments,
                          collectives::Consumer* consumer) {
  packing_.reset();
  if (!is_on()) return;
  if (const auto* codec = compression_.codec_of(Leg::all)) {
    return packed_sum_.stage({*codec, entries, segments, consumer});
  }
  const collectives::Codec& between = *compression_.codec_of(Leg::between);
  residuals_.clear();
  for (Entry* entry : entries) {
    residuals_.push_back(between.has_residual() ? residual_of(*entry) : nullptr);
  }
  packing_.emplace(collectives::Packing{between, residuals_});
}

std::byte* CompressedSum::stage_packed(std::span<Entry* const> entries,
                                       std::span<const collectives::Segment> segments) {
  packing_.reset();
  packed_sum_.stage({*compression_.codec_of(Leg::all), entries, segments, /*consumer=*/nullptr,
                     /*is_packed_elsewhere=*/true});
  return packed_sum_.packed();
}

void CompressedSum::apply(collectives::Operation& operation) {
  if (packing_) operation.packing = &*packing_;
  if (compression_.codec_of(Leg::all) == nullptr) return;
  operation.kind = collectives::Kind::allgather;
  operation.segments = packed_sum_.segments();
  operation.consumer = &packed_sum_;
}

void CompressedSum::commit(std::span<Entry* const> entries) const {
  if (!is_on()) return;
  for (Entry* entry : entries) entry->has_sent = true;
}

}  // namespace tutti
