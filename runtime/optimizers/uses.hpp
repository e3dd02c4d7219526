// SPDX-License-Identifier: Apache-2.0
// The stores that run an optimizer. Pushes under way read its options, so a call that changes these
// waits for the pushes first.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "tutti/optimizer.hpp"

namespace tutti {

/// The uses of one optimizer by stores. Any thread.
class OptimizerUses {
 public:
  using Wait = std::function<void()>;

  void add(const std::shared_ptr<const Wait>& wait);
  /// Returns when no push of any store is under way. A call by a push does not wait for pushes of
  /// the same group. Only the caller may change options as long as it holds the lock.
  [[nodiscard]] std::unique_lock<std::mutex> wait() const;

 private:
  mutable std::mutex mutex_;
  mutable std::mutex changing_;
  std::vector<std::weak_ptr<const Wait>> waits_;  ///< empty once the use has ended
};

/// A store runs the optimizer while an object of this class lives. `wait` returns when none of its
/// pushes is under way, and may be called when the store is gone.
class OptimizerUse {
 public:
  OptimizerUse(const Optimizer& optimizer, OptimizerUses::Wait wait)
      : wait_(std::make_shared<const OptimizerUses::Wait>(std::move(wait))) {
    optimizer.uses_->add(wait_);
  }

 private:
  std::shared_ptr<const OptimizerUses::Wait> wait_;
};

}  // namespace tutti
