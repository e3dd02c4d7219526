// SPDX-License-Identifier: Apache-2.0
// The file of TUTTI_TUNING: the fastest paths of a machine, as measured by tutti-doctor --tuning.
//
//   file    := "# tutti tuning 1" newline { comment | row }
//   comment := "#" text newline
//   row     := name "=" value { " " name "=" value } newline
//
// The names of a row, each once: ranks (of the node), kind (allreduce ...), data (the memory of the
// inputs: shared, ordinary, mixed), in-place, apart (yes, no: see CallClass), consumed (yes, no, or
// shared if ranks may share updates), bytes (the smallest of the class, a power of two), inputs,
// results, slots, outputs (the path), margin (its speed as a multiple of the static choice's).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/choice/learner.hpp"

namespace tutti {

struct TuningRow {
  int ranks = 0;  ///< ranks of the node on which it was measured
  collectives::LearntPath learnt;
};

/// Returns the rows of a file's text. Errors: invalid_argument with `name`, the line, its text and
/// what was expected.
std::vector<TuningRow> parse_tuning(std::string_view text, const std::string& name);

/// Returns the text of a file with these rows; `comment` describes the machine in one line.
std::string tuning_text(const std::vector<TuningRow>& rows, const std::string& comment);

/// The rows that apply to a group: those for nodes with its number of ranks.
struct KnownPaths {
  std::vector<collectives::LearntPath> paths;
  std::uint64_t digest = 0;  ///< of the file; 0 without one
  /// All rows of the file, for groups of some of the ranks, which must not read the file again,
  /// because it may have changed. Null without a file.
  std::shared_ptr<const std::vector<TuningRow>> rows;

  /// Returns the rows that apply to a group on nodes of `ranks_of_node` ranks.
  [[nodiscard]] KnownPaths for_ranks(int ranks_of_node) const;
};

/// Local. Errors: io if the file cannot be read; invalid_argument as above.
KnownPaths read_known_paths(const std::string& tuning, int ranks_of_node);

}  // namespace tutti
