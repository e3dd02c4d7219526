// SPDX-License-Identifier: Apache-2.0
// Samples of rows on GPUs, which a push digests before it changes them: see RowSample.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "runtime/base/digest.hpp"
#include "runtime/job/group.hpp"
#include "runtime/store/device/device_copies.hpp"

namespace tutti {

/// The sampled rows of GPUs. One launch for each GPU copies them side by side, in the stream before
/// the update. The host fetches them when the next push of rows begins: by then they have long been
/// there.
class DeviceSample {
 public:
  explicit DeviceSample(Group& group) : group_(group) {}

  /// Announces that the push adds at most so many bytes more on this GPU.
  void expect(int device, std::size_t bytes) { samples_[device].expected += bytes; }
  /// Makes room for all that is expected, in place of the rows that the last push added. Errors:
  /// out_of_memory.
  void prepare();
  void add(int device, const std::byte* bytes, std::size_t count);
  /// Puts the copies into the streams.
  void copy() { copies_.run(); }

  /// Digests the copies, piece by piece in the order of add(), since ranks may have a key on
  /// different GPUs. Then forgets them. Waits for the copies. Errors: timeout, communication (the
  /// group has failed).
  void settle(Digest& digest);
  void clear();
  /// Keeps memory of streams until the process ends, after a failure: freeing it would wait for the
  /// streams.
  void leak_until_exit();

 private:
  /// The bytes of one GPU that are compared.
  struct GpuSample {
    std::size_t expected = 0;
    std::size_t bytes = 0;  ///< bytes that were added
    std::optional<Tensor> rows;
  };
  /// The bytes that one add() has put into a sample.
  struct Piece {
    int device;
    std::size_t begin;
    std::size_t bytes;
  };

  Group& group_;
  DeviceCopies copies_;
  std::map<int, GpuSample> samples_;  ///< by device
  std::vector<Piece> pieces_;         ///< in the order in which they were added
};

}  // namespace tutti
