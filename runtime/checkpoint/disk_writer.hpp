// SPDX-License-Identifier: Apache-2.0
// Rank 0's thread that copies a snapshot to the disk while the program goes on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "tutti/pending.hpp"

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/job/async_state.hpp"

namespace tutti::checkpoint {

/// One copy at a time. Local; the program's thread alone calls it.
class DiskWriter {
 public:
  DiskWriter() = default;
  /// Returns when the copy under way has ended.
  ~DiskWriter();
  DiskWriter(const DiskWriter&) = delete;
  DiskWriter& operator=(const DiskWriter&) = delete;

  /// Begins a copy, when the one before was taken. `number` is the snapshot's.
  Pending start(std::uint64_t number, std::function<Saved()> copy,
                std::function<void(const std::string&)> warn);
  /// The snapshot that is being copied; 0 if there is none.
  [[nodiscard]] std::uint64_t held() const { return is_done() ? 0 : number_; }
  /// True once the copy has ended, or if there is none; waits for that, but not longer than this.
  [[nodiscard]] bool wait_for(std::chrono::duration<double> most) const;
  /// Returns the result of the last copy, once; nothing if it was returned before, or if there was
  /// no copy. Errors  io: the copy has failed.
  std::optional<Saved> take();

 private:
  /// Outlives the writer with a Pending.
  struct Shared {
    std::mutex mutex;
    std::condition_variable ended;
    bool is_done = true;
    std::optional<Saved> saved;
  };
  [[nodiscard]] bool is_done() const { return wait_for(std::chrono::duration<double>(0)); }

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::shared_ptr<AsyncState> state_;
  std::uint64_t number_ = 0;
  std::thread thread_;
};

}  // namespace tutti::checkpoint
