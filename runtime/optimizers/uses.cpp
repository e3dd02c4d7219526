// SPDX-License-Identifier: Apache-2.0
#include "runtime/optimizers/uses.hpp"

namespace tutti {

void OptimizerUses::add(const std::shared_ptr<const Wait>& wait) {
  const std::lock_guard lock(mutex_);
  std::erase_if(waits_, [](const auto& known) { return known.expired(); });
  waits_.push_back(wait);
}

/// Waits without the lock, since a push that is waited for may end a use.
std::unique_lock<std::mutex> OptimizerUses::wait() const {
  std::vector<std::shared_ptr<const Wait>> waits;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& known : waits_) waits.push_back(known.lock());
  }
  for (const auto& wait : waits) {
    if (wait != nullptr) (*wait)();
  }
  return std::unique_lock(changing_);
}

}  // namespace tutti
