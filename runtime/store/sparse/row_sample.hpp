// SPDX-License-Identifier: Apache-2.0
// Which rows a push of rows looks at before it changes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/settings.hpp"

#include "runtime/base/digest.hpp"
#include "runtime/store/sparse/rows.hpp"

namespace tutti {

/// Digests rows of tables, and of optimizer states, that all ranks should hold alike.
///
/// The ranks know which rows a push changes only after exchanging them, and then nothing is
/// announced any more. So the digest of the rows' old content travels with the next push of rows. A
/// push digests one row in kShare, each time another, and at least one of every key.
class RowSample {
 public:
  static constexpr std::size_t kShare = 256;

  explicit RowSample(Verify mode) : mode_(mode) {}

  /// Rows that are about to change: those of all ranks, sorted by id.
  void look_at(Entry& entry, std::span<const FoundRow> rows);

  /// The digest of all rows that were looked at since clear(); 0 if none was.
  [[nodiscard]] std::uint32_t digest() const;
  [[nodiscard]] std::span<Entry* const> entries() const { return entries_; }
  /// Ranks have compared the digest. The next push looks at other rows.
  void clear();

 private:
  void add(const Entry& entry, std::size_t row);

  Verify mode_;
  std::size_t pushes_ = 0;
  Digest digest_;
  std::vector<Entry*> entries_;
};

}  // namespace tutti
