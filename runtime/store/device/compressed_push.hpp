// SPDX-License-Identifier: Apache-2.0
// The sum over ranks of keys on GPUs whose gradients are compressed: the hosts make it, as they do
// for keys on the cpu. GPUs pack what they can (DevicePacking). Else the values come to the host in
// a bucket and are packed there, with residuals in the host's memory.
//
//   GPU    values + residual -> packed                                  bucket -> update
//                                 |                                       ^
//                                 |          one copy for all keys of a GPU
//   host                        packed -> exchanged -> unpacked, summed in a bucket
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "tutti/tensor.hpp"

#include "collectives/node/call.hpp"
#include "runtime/job/group.hpp"
#include "runtime/store/core/gradient_compression.hpp"
#include "runtime/store/core/key_table.hpp"
#include "runtime/store/dense/compressed_sum.hpp"
#include "runtime/store/device/device_packing.hpp"

namespace tutti {

class CompressedPush {
 public:
  CompressedPush(Group& group, const GradientCompression& compression)
      : group_(group), compressed_sum_(group, compression), packing_(group, compression) {}

  /// See CompressedSum.
  [[nodiscard]] bool is_on() const { return compressed_sum_.is_on(); }
  /// Nobody needs the sum of this rank's values in a bucket.
  [[nodiscard]] bool packs_on_gpu() const { return packing_.is_on(); }

  /// A push begins: nothing is in a bucket.
  void clear();
  /// The bucket of a GPU: float32, where the sums over ranks go. Unless packs_on_gpu(), it has the
  /// gradients when what is in the stream has run, which is waited for.
  /// Errors: out_of_memory, timeout, communication (the group has failed).
  void take_bucket(int device, std::byte* bucket, std::size_t bytes);
  /// A key on a GPU, its place in the bucket, and its values as Kernels::sum() takes them. In the
  /// order of the push. Errors: as take_bucket().
  void add(Entry& entry, const std::byte* place, const gpus::TensorRow& values);
  /// Packs the gradients of these entries, one for each add(). Local. Errors: as take_bucket().
  void stage(std::span<Entry* const> entries);

  /// Sums over the ranks. Collective: the operation carries the agreement of a push of the entries.
  void sum(collectives::Operation operation, std::span<Entry* const> entries);
  /// After the sum, in the order of the GPUs' streams: takes what was sent from the residuals that
  /// are there, and puts the sums into the buckets. Errors: as take_bucket().
  void finish();

  /// After a failure: to free what a stream uses would wait for the stream.
  void leak_until_exit() { packing_.leak_until_exit(); }

 private:
  struct Bucket {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    std::optional<Tensor> host;  ///< in the arena; keeps its size from push to push
  };
  [[nodiscard]] static TensorView view_of(std::byte* memory, std::size_t bytes, Device device);

  Group& group_;
  CompressedSum compressed_sum_;
  DevicePacking packing_;
  std::map<int, Bucket> buckets_;  ///< by device; without bytes: not of this push
  std::vector<collectives::Segment> segments_;
};

}  // namespace tutti
