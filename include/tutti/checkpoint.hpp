// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a store: the program's own metadata, the options of a load, and its result.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tutti {

/// Texts that a program saves with a store, such as epoch, position and seed. Names and values are
/// UTF-8.
using Metadata = std::map<std::string, std::string>;

struct LoadOptions {
  /// Takes the values alone, whatever updated them; an optimizer of this store starts without
  /// states.
  bool weights_only = false;
  /// Takes the states of an optimizer of the same name whose options differ from this store's. A
  /// learning rate that is not the base of a schedule may differ without this. A checkpoint never
  /// changes options.
  bool other_options = false;
  /// An absent checkpoint gives an empty result; without this it is an error.
  bool may_be_absent = false;
};

struct LoadResult {
  std::uint64_t generation = 0;  ///< counts the saves into a directory; 0: there was no checkpoint
  Metadata metadata{};
  /// Newer generations that are damaged and were passed over: one sentence each, newest first.
  std::vector<std::string> damaged{};
  /// The reason why saved residuals of gradient compression begin at zero: another compression,
  /// number of ranks, or layout. Empty if they were taken, or if none were saved or asked for.
  std::string reset_residuals{};
  /// Taken from a snapshot in the nodes' memory; `generation` then counts snapshots.
  bool from_memory = false;
  /// The pushes that the store had made when this was saved, those before earlier loads included; 0
  /// if an earlier version saved it.
  std::uint64_t pushes = 0;
  /// Pushes after these that the nodes know of, and that have to be made again.
  std::uint64_t lost_pushes = 0;

  explicit operator bool() const noexcept { return generation != 0; }
};

}  // namespace tutti
