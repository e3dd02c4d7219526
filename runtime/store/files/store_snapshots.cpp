// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/files/store_snapshots.hpp"

#include <algorithm>
#include <array>

namespace tutti {

bool SnapshotSchedule::is_due(Communicator& ranks) {
  const bool is_due = !taken_ || Clock::now() - *taken_ >= every_;
  std::array<std::int64_t, 2> said{is_due ? 1 : 0, next_calls()};
  ranks.broadcast(view(said.data(), {said.size()}), 0);
  next_message_ = said[1];
  calls_ = 0;
  asked_ = Clock::now();
  return said[0] != 0;
}

/// Grows slowly, because steps may become longer.
std::int64_t SnapshotSchedule::next_calls() const {
  constexpr double kParts = 16;
  const std::chrono::duration<double> passed = Clock::now() - asked_;
  const double wanted =
      static_cast<double>(calls_) * every_.count() / kParts / std::max(passed.count(), 1e-9);
  const auto most = static_cast<double>(2 * next_message_);
  return static_cast<std::int64_t>(std::clamp(wanted, 1.0, most));
}

checkpoint::Snapshots& StoreSnapshots::of(Communicator& ranks,
                                          const std::filesystem::path& directory) {
  auto found = of_directories_.find(directory);
  if (found == of_directories_.end()) {
    ranks.agree([&] {
      if (folder_ != nullptr || ranks.local_rank() != 0) return;
      folder_ = std::make_unique<checkpoint::SnapshotFolder>(folder_of_job_);
    });
    const auto& folder = folder_ == nullptr ? std::filesystem::path() : folder_->path();
    found = of_directories_.try_emplace(directory, ranks, folder, directory).first;
  }
  last_used_ = &found->second;
  return found->second;
}

checkpoint::Snapshots* StoreSnapshots::to_load(Communicator& ranks,
                                               const std::filesystem::path& directory) {
  const bool may_have = !folder_of_job_.empty() || of_directories_.contains(directory);
  return may_have ? &of(ranks, directory) : nullptr;
}

}  // namespace tutti
