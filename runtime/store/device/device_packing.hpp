// SPDX-License-Identifier: Apache-2.0
// What a push of keys on GPUs sends, packed by the GPUs: only packed bytes come to the host.
//
//   GPU    values + residual -> packed         residual = what was not sent, once all ranks agree
//                                 |  one copy for keys that follow one another on a GPU
//   host                        packed
//
// Residuals are on the keys' GPUs. After a load they are on the host until the next push.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/gpu/gpus.hpp"
#include "runtime/job/group.hpp"
#include "runtime/store/core/gradient_compression.hpp"
#include "runtime/store/core/key_table.hpp"

namespace tutti {

class DevicePacking {
 public:
  DevicePacking(Group& group, const GradientCompression& compression)
      : group_(group), compression_(compression) {}

  /// False of what the host packs: topk, and all formats with leg=between, which packs sums that
  /// are made on the host.
  [[nodiscard]] bool is_on() const;

  /// A push begins.
  void clear();
  /// A key, and its values as Kernels::sum() takes them. In the order of the push.
  /// Errors  out_of_memory for a residual; what Group::copy() throws.
  void add(Entry& entry, const gpus::TensorRow& values);
  /// Launches the packing on each GPU; changes no residual. Errors: out_of_memory.
  void pack();
  /// Brings what is packed to the host, key after key, and waits for it. Errors: as Group::copy().
  void bring(std::byte* packed);
  /// Takes what was sent from the residuals, in the order of the GPUs' streams.
  void feed_back();

  /// After a failure: to free what a stream uses would wait for the stream.
  void leak_until_exit();

 private:
  /// The keys of the push that are on one GPU, and their packed bytes.
  struct PackedKeys {
    std::vector<gpus::TensorRow> rows;
    std::vector<std::size_t> places;  ///< of each row's packed bytes
    std::optional<Tensor> packed;     ///< has the places of all keys; keeps its size
    std::unique_ptr<gpus::LaunchTable> table;
  };
  /// Packed bytes of one GPU that lie together.
  struct Run {
    int device;
    std::size_t begin;
    std::size_t bytes;
  };
  [[nodiscard]] std::byte* residual_of(Entry& entry);

  Group& group_;
  const GradientCompression& compression_;
  std::shared_ptr<gpus::Gpus> gpus_;
  std::map<int, PackedKeys> work_;  ///< by device; without rows: not of this push
  std::vector<Run> runs_;
  std::size_t bytes_ = 0;  ///< of all keys
};

}  // namespace tutti
