// SPDX-License-Identifier: Apache-2.0
// The file of TUTTI_TUNING: the fastest paths of a machine, as tutti-doctor --tuning measured them.
//
//   file    := "# tutti tuning 1" newline { comment | row }
//   comment := "#" text newline
//   row     := name "=" value { " " name "=" value } newline
//
// The names of a row, each once: ranks (of the node), kind (allreduce ...), data (shared, ordinary,
// mixed: where the inputs lie), in-place, apart (yes, no: see CallClass), consumed (yes, no, or
// shared: ranks may share updates), bytes (the least of the class, a power of two), inputs,
// results, slots, outputs (the path), margin (how many times faster than the static choice it was).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/choice/learner.hpp"

namespace tutti {

struct TuningRow {
  int ranks = 0;  ///< of the node that it was measured on
  collectives::LearntPath learnt;
};

/// The rows of a file's text. Errors: invalid_argument with `name`, the line, what stands there and
/// what was expected.
std::vector<TuningRow> parse_tuning(std::string_view text, const std::string& name);

/// The text of a file with these rows; `comment` describes the machine, in one line.
std::string tuning_text(const std::vector<TuningRow>& rows, const std::string& comment);

/// What a group with these settings reads: the rows for nodes of so many ranks.
struct KnownPaths {
  std::vector<collectives::LearntPath> paths;
  std::uint64_t digest = 0;  ///< of the file; 0 without one
  /// All rows of the file, which a group of some of the ranks must not read again: it may be
  /// another one by then. Null without a file.
  std::shared_ptr<const std::vector<TuningRow>> rows;

  /// What a group on nodes of so many ranks takes of the rows.
  [[nodiscard]] KnownPaths for_ranks(int ranks_of_node) const;
};

/// Local. Errors: io if the file cannot be read; invalid_argument as above.
KnownPaths read_known_paths(const std::string& tuning, int ranks_of_node);

}  // namespace tutti
