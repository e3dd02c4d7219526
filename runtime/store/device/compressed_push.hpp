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

  /// True if pushes are compressed: see CompressedSum.
  [[nodiscard]] bool is_on() const { return compressed_sum_.is_on(); }
  /// True if GPUs pack the values, so that this rank's sums are not needed in a bucket.
  [[nodiscard]] bool packs_on_gpu() const { return packing_.is_on(); }

  /// Begins a push: no bucket has anything.
  void clear();
  /// The bucket of a GPU: float32, where the sums over ranks go. Unless packs_on_gpu(), it has the
  /// gradients once the work in the stream has run, which is waited for. Errors: out_of_memory,
  /// timeout, communication (the group has failed).
  void take_bucket(int device, std::byte* bucket, std::size_t bytes);
  /// Adds a key on a GPU, its place in the bucket, and its values as Kernels::sum() takes them. In
  /// the order of the push. Errors: those of take_bucket().
  void add(Entry& entry, const std::byte* place, const gpus::TensorRow& values);
  /// Packs the gradients of these entries, one for each add(). Local. Errors: those of
  /// take_bucket().
  void stage(std::span<Entry* const> entries);

  /// Sums over the ranks. Collective: the operation carries the agreement of a push of the entries.
  void sum(collectives::Operation operation, std::span<Entry* const> entries);
  /// Called after the sum: takes the values that were sent from residuals on GPUs, and puts the
  /// sums into the buckets, in the order of the GPUs' streams. Errors: those of take_bucket().
  void finish();

  /// Keeps memory of streams until the process ends, after a failure: freeing it would wait for the
  /// streams.
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
  std::map<int, Bucket> buckets_;  ///< by device; those without bytes have no keys of this push
  std::vector<collectives::Segment> segments_;
};

}  // namespace tutti
