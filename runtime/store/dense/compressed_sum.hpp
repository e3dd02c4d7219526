// SPDX-License-Identifier: Apache-2.0
// How the sum of a push is compressed, wherever the keys lie: what is packed, and what the push's
// operation becomes.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "collectives/node/call.hpp"
#include "runtime/job/group.hpp"
#include "runtime/store/core/gradient_compression.hpp"
#include "runtime/store/core/key_table.hpp"
#include "runtime/store/dense/packed_sum.hpp"

namespace tutti {

class CompressedSum {
 public:
  CompressedSum(Group& group, const GradientCompression& compression)
      : group_(group), compression_(compression), packed_sum_(group) {}

  /// False also with leg=between on one node, which sends nothing to another one.
  [[nodiscard]] bool is_on() const;

  /// Packs what this rank pushes, or finds the residuals of what its node will send. Segment i is
  /// entries[i]; its outputs get the sum, unless `consumer` takes it. All must outlive the
  /// operation. Local. Errors: out_of_memory.
  void stage(std::span<Entry* const> entries, std::span<const collectives::Segment> segments,
             collectives::Consumer* consumer);
  /// As stage() with leg=all, for gradients that are packed elsewhere, where their residuals are,
  /// too: returns where the packed bytes go, key after key without gaps. Errors: out_of_memory.
  [[nodiscard]] std::byte* stage_packed(std::span<Entry* const> entries,
                                        std::span<const collectives::Segment> segments);
  /// Changes the operation that sums these segments as the compression needs it.
  void apply(collectives::Operation& operation);
  /// After an operation that has been compressed: the residuals are what is left to send.
  void commit(std::span<Entry* const> entries) const;

 private:
  Group& group_;
  const GradientCompression& compression_;
  PackedSum packed_sum_;
  std::vector<float*> residuals_;  ///< each key's residual, for leg=between
  std::optional<collectives::Packing> packing_;
};

}  // namespace tutti
