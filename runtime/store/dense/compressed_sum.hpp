// SPDX-License-Identifier: Apache-2.0
// The compressed sum of a push, wherever its keys lie: packs the values, and changes the push's
// operation.
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

  /// True if pushes are compressed. False also with leg=between on one node, which sends nothing to
  /// another one.
  [[nodiscard]] bool is_on() const;

  /// Packs the values that this rank pushes, or finds the residuals of the sums that its node will
  /// send. Segment i is entries[i]; its outputs get the sum, unless `consumer` takes it. All must
  /// outlive the operation. Local. Errors: out_of_memory.
  void stage(std::span<Entry* const> entries, std::span<const collectives::Segment> segments,
             collectives::Consumer* consumer);
  /// stage() with leg=all, for gradients that are packed elsewhere, with their residuals: returns
  /// the memory for the packed bytes, key after key without gaps. Errors: out_of_memory.
  [[nodiscard]] std::byte* stage_packed(std::span<Entry* const> entries,
                                        std::span<const collectives::Segment> segments);
  /// Changes the operation that sums these segments to the one that the compression needs.
  void apply(collectives::Operation& operation);
  /// Called after a compressed operation: the residuals become the values that are left to send.
  void commit(std::span<Entry* const> entries) const;

 private:
  Group& group_;
  const GradientCompression& compression_;
  PackedSum packed_sum_;
  std::vector<float*> residuals_;  ///< each key's residual, for leg=between
  std::optional<collectives::Packing> packing_;
};

}  // namespace tutti
