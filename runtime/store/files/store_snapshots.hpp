// SPDX-License-Identifier: Apache-2.0
// The snapshots that a store has taken: where they are, of which push, and when the next is due.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tutti/communicator.hpp"
#include "tutti/settings.hpp"

#include "runtime/checkpoint/snapshots.hpp"

namespace tutti {

/// Decides when a snapshot is due: rank 0's clock, which the others hear of in a message. Between
/// two messages are so many calls that about a sixteenth of the period passes, so that they cost
/// nothing where steps are short.
class SnapshotSchedule {
 public:
  explicit SnapshotSchedule(std::chrono::duration<double> every) : every_(every) {}

  /// Counts a call; false if no message is due, let alone a snapshot. Local, the same on all ranks.
  bool may_be_due() { return every_.count() > 0 && ++calls_ >= next_message_; }
  /// Collective; the same on all ranks. The first call is due, so that too little memory shows.
  bool is_due(Communicator& ranks);
  void was_taken() { taken_ = Clock::now(); }
  void end() { every_ = std::chrono::duration<double>(0); }

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] std::int64_t next_calls() const;

  std::chrono::duration<double> every_;
  std::optional<Clock::time_point> taken_;
  Clock::time_point asked_ = Clock::now();
  std::int64_t calls_ = 0;         ///< since the last message
  std::int64_t next_message_ = 1;  ///< after so many calls
};

class StoreSnapshots {
 public:
  explicit StoreSnapshots(const Settings& settings)
      : folder_of_job_(settings.snapshots), schedule_(settings.snapshot_every) {}

  /// The snapshots for a directory. Collective. Errors  agreed: io.
  checkpoint::Snapshots& of(Communicator& ranks, const std::filesystem::path& directory);
  /// The snapshots for a directory that load() may take, or null if there cannot be any.
  /// Collective.
  checkpoint::Snapshots* to_load(Communicator& ranks, const std::filesystem::path& directory);

  [[nodiscard]] std::uint64_t pushes() const { return pushes_; }
  void set_pushes(std::uint64_t pushes) { pushes_ = pushes; }
  void count_push() noexcept {
    ++pushes_;
    if (last_used_ != nullptr) last_used_->note_push(pushes_);
  }

  bool may_be_due() { return schedule_.may_be_due(); }
  bool is_due(Communicator& ranks) { return schedule_.is_due(ranks); }
  void was_taken() { schedule_.was_taken(); }
  void end_schedule() { schedule_.end(); }

 private:
  std::filesystem::path folder_of_job_;  ///< empty: none that outlives the store
  SnapshotSchedule schedule_;
  std::uint64_t pushes_ = 0;
  std::unique_ptr<checkpoint::SnapshotFolder> folder_;  ///< on each node's first rank
  std::map<std::filesystem::path, checkpoint::Snapshots> of_directories_;
  checkpoint::Snapshots* last_used_ = nullptr;
};

}  // namespace tutti
