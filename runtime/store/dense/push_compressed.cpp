// SPDX-License-Identifier: Apache-2.0
// What a push does otherwise under gradient compression.
#include "runtime/store/dense/push.hpp"

namespace tutti {

using compression::Leg;

collectives::Consumer* Push::piecewise_consumer() {
  return consumer_ && !needs_whole_sums() ? &*consumer_ : nullptr;
}

void Push::stage_compression() {
  packing_.reset();
  if (const auto* codec = compression_.codec_of(Leg::all)) {
    packed_sum_.stage({*codec, list_.entries(), segments_, piecewise_consumer()});
  }
  const auto* between = compression_.codec_of(Leg::between);
  if (between == nullptr || group_.topology().num_nodes() == 1) return;
  residuals_.clear();
  for (Entry* entry : list_.entries()) {
    residuals_.push_back(between->has_residual() ? residual_of(*entry) : nullptr);
  }
  packing_.emplace(collectives::Packing{*between, residuals_});
}

void Push::compress(collectives::Operation& operation) {
  if (packing_) operation.packing = &*packing_;
  if (compression_.codec_of(Leg::all) == nullptr) return;
  operation.kind = collectives::Kind::allgather;
  operation.segments = packed_sum_.segments();
  operation.consumer = &packed_sum_;
}

}  // namespace tutti
