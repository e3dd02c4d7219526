// SPDX-License-Identifier: Apache-2.0
// The sample of replicas that a push digests before it changes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/settings.hpp"

#include "runtime/store/core/key_table.hpp"

namespace tutti {

/// Digests parts of tensors that all ranks should hold alike: replicas and optimizer states.
///
/// A push of a key digests about 1/kShare of its bytes and a few more, from where the push before
/// left off. After kShare pushes all bytes have been digested. A list of many keys takes some of
/// its keys at a time, and more of each. The choice of parts depends on earlier pushes alone, which
/// are the same on every rank, so ranks compare the digests of equal parts.
class Sample {
 public:
  static constexpr std::size_t kSampleBytes = 4096;
  static constexpr std::size_t kShare = 256;

  explicit Sample(Verify mode) : mode_(mode) {}

  /// The digest of this push's part; 0 if it is Verify::off. The same until commit().
  std::uint32_t digest(std::span<Entry* const> entries);
  /// Called when the push was carried out: the next sample begins behind this one.
  void commit();

 private:
  struct Visit {
    Entry* entry;
    Entry::Verified after;
  };
  Visit visit(Entry& entry, std::size_t share_of_list, class Digest& digest) const;

  Verify mode_;
  std::size_t position_ = 0;  ///< position in the list of keys
  std::size_t visits_now_ = 0;
  std::vector<Visit> visits_;
};

/// The tensors of a key that ranks should hold alike: the replica, then the states of its
/// optimizer.
[[nodiscard]] std::size_t num_tensors(const Entry& entry);
[[nodiscard]] const Tensor& tensor_of(const Entry& entry, std::size_t index);

}  // namespace tutti
