// SPDX-License-Identifier: Apache-2.0
// The sample of rows that a push of rows digests before it changes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/settings.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/job/group.hpp"
#include "runtime/store/sparse/device_sample.hpp"
#include "runtime/store/sparse/rows.hpp"

namespace tutti {

/// A digest of rows of tables, and of optimizer states, that all ranks should hold alike.
///
/// The ranks know which rows a push changes only after exchanging them, and then nothing is
/// announced any more. So the digest of the rows' old content travels with the next push of rows. A
/// push digests one row in kShare, each time another, and at least one of every key.
class RowSample {
 public:
  static constexpr std::size_t kShare = 256;

  RowSample(Group& group, Verify mode) : mode_(mode), on_gpus_(group) {}

  /// Announces that look_at() will be given at most so many rows of this entry, which has its
  /// states.
  void expect(const Entry& entry, std::size_t rows);
  /// Makes room for the rows that are expected on GPUs. Errors: out_of_memory.
  void prepare() { on_gpus_.prepare(); }
  /// Digests a share of rows that are about to change: `rows` are those of all ranks, sorted by id.
  void look_at(Entry& entry, std::span<const FoundRow> rows);
  /// Copies rows on GPUs. Called after the last look_at(), and before they change.
  void copy() { on_gpus_.copy(); }
  /// Fetches the rows on GPUs; called before digest(). Errors: those of DeviceSample::settle().
  void settle() { on_gpus_.settle(digest_); }

  /// The digest of all rows that were looked at since clear(); 0 if none was.
  [[nodiscard]] std::uint32_t digest() const;
  [[nodiscard]] std::span<Entry* const> entries() const { return entries_; }
  /// Called when ranks have compared the digest. The next push looks at other rows.
  void clear();
  /// Keeps memory of streams until the process ends, after a failure: freeing it would wait for the
  /// streams.
  void leak_until_exit() { on_gpus_.leak_until_exit(); }

 private:
  [[nodiscard]] std::size_t step() const { return mode_ == Verify::full ? 1 : kShare; }
  void add(const Entry& entry, std::size_t row);

  Verify mode_;
  std::size_t pushes_ = 0;
  Digest digest_;
  std::vector<Entry*> entries_;
  DeviceSample on_gpus_;
};

}  // namespace tutti
