// SPDX-License-Identifier: Apache-2.0
// Which stores run an optimizer: pushes that are under way read its options, so who changes these
// waits for them first.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "tutti/optimizer.hpp"

namespace tutti {

/// Any thread.
class OptimizerUses {
 public:
  using Wait = std::function<void()>;

  void add(const std::shared_ptr<const Wait>& wait);
  /// Returns when no push of any store is under way. Called by a push of the same group, it does
  /// not wait for that. Options are the caller's alone to change as long as it holds the lock.
  [[nodiscard]] std::unique_lock<std::mutex> wait() const;

 private:
  mutable std::mutex mutex_;
  mutable std::mutex changing_;
  std::vector<std::weak_ptr<const Wait>> waits_;  ///< empty once the use has ended
};

/// A store runs the optimizer while this lives. `wait` returns when none of its pushes is under
/// way, and may be called when the store is gone.
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
