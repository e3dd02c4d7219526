// SPDX-License-Identifier: Apache-2.0
// Compression of keys on GPUs, by the GPUs: only packed bytes come to the host.
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

  /// False for compressions by the host: topk, and all formats with leg=between, which pack sums
  /// that are made on the host.
  [[nodiscard]] bool is_on() const;

  /// Begins a push.
  void clear();
  /// Adds a key, and its values as Kernels::sum() takes them. In the order of the push. Errors:
  /// out_of_memory for a residual; those of Group::copy().
  void add(Entry& entry, const gpus::TensorRow& values);
  /// Launches the packing on each GPU; changes no residual. Errors: out_of_memory.
  void pack();
  /// Copies the packed bytes to the host, key after key, and waits for them. Errors: those of
  /// Group::copy().
  void bring(std::byte* packed);
  /// Takes the values that were sent from the residuals, in the order of the GPUs' streams.
  void feed_back();

  /// Keeps memory of streams until the process ends, after a failure: freeing it would wait for the
  /// streams.
  void leak_until_exit();

 private:
  /// The keys of the push that are on one GPU, and their packed bytes.
  struct PackedKeys {
    std::vector<gpus::TensorRow> rows;
    std::vector<std::size_t> places;  ///< offset of each row's packed bytes
    std::optional<Tensor> packed;     ///< the packed bytes of all keys; keeps its size
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
  std::map<int, PackedKeys> work_;  ///< by device; those without rows have no keys of this push
  std::vector<Run> runs_;
  std::size_t bytes_ = 0;  ///< packed bytes of all keys
};

}  // namespace tutti
