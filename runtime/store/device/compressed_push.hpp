// SPDX-License-Identifier: Apache-2.0
// The sum over ranks of keys on GPUs whose gradients are compressed: the hosts make it, as they do
// for keys on the cpu, with residuals in the host's memory.
//
//   GPU    values -> bucket                                         bucket -> update
//                      |  a copy each way for all keys of the GPU     ^
//   host             bucket -> packed -> exchanged -> unpacked, summed
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "tutti/tensor.hpp"

#include "collectives/call.hpp"
#include "runtime/job/group.hpp"
#include "runtime/store/core/gradient_compression.hpp"
#include "runtime/store/core/key_table.hpp"
#include "runtime/store/dense/compressed_sum.hpp"

namespace tutti {

class CompressedPush {
 public:
  CompressedPush(Group& group, const GradientCompression& compression)
      : group_(group), compressed_sum_(group, compression) {}

  /// See CompressedSum.
  [[nodiscard]] bool is_on() const { return compressed_sum_.is_on(); }

  /// Nothing is in a bucket.
  void clear();
  /// Brings float32 values of a GPU to the host, behind what is in its stream, and waits for them.
  /// Errors: out_of_memory, timeout, communication (the group has failed).
  void bring(int device, std::byte* bucket, std::size_t bytes);
  /// A key on this GPU, whose gradient is in its bucket at `place`. In the order of the push.
  void add(int device, const std::byte* place, std::size_t count);
  /// Packs the gradients of these entries, one for each add(). Local. Errors: out_of_memory.
  void stage(std::span<Entry* const> entries) {
    compressed_sum_.stage(entries, segments_, /*consumer=*/nullptr);
  }

  /// Sums over the ranks. Collective: the operation carries the agreement of a push.
  void sum(collectives::Operation operation);
  /// Puts the sums into the buckets, in the order of their GPUs' streams. Errors: as bring().
  void return_sums();

 private:
  struct Bucket {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    std::optional<Tensor> host;  ///< in the arena; keeps its size from push to push
  };
  [[nodiscard]] static TensorView view_of(std::byte* memory, std::size_t bytes, Device device);

  Group& group_;
  CompressedSum compressed_sum_;
  std::map<int, Bucket> buckets_;  ///< by device; without bytes: not of this push
  std::vector<collectives::Segment> segments_;
};

}  // namespace tutti
