// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/dense/unheld_pushes.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "tutti/error.hpp"

namespace tutti {

namespace {

constexpr std::size_t kFewPushes = 8;

/// The error of a push, which counts as told from then on: whoever destroys the store is told of
/// errors that were not.
std::exception_ptr hear(AsyncState& push) {
  try {
    push.wait();
    return nullptr;
  } catch (const Error&) {
    return std::current_exception();
  }
}

}  // namespace

void UnheldPushes::add(const Entry& entry, std::shared_ptr<AsyncState> push) {
  PushesOfKey& key = keys_[&entry];
  if (key.pushes.size() >= key.settle_at) {
    settle(key);
    key.settle_at = 2 * key.pushes.size() + kFewPushes;
  }
  key.pushes.push_back({std::move(push)});
}

/// Forgets pushes whose errors no call will ask for again.
void UnheldPushes::settle(PushesOfKey& key) {
  std::erase_if(key.pushes, [&](const Push& push) {
    if (!push.state->ready()) return false;
    const std::uint64_t failure = push.state->failure();
    if (failure == 0) return true;
    if (first_ == nullptr || failure < first_->failure()) first_ = push.state;
    return push.is_told;
  });
}

void UnheldPushes::throw_of(const Entry& entry) {
  const auto key = keys_.find(&entry);
  if (key == keys_.end()) return;
  std::exception_ptr first;
  for (Push& push : key->second.pushes) {
    if (push.is_told || push.state->failure() == 0) continue;
    const std::exception_ptr error = hear(*push.state);
    if (first == nullptr) first = error;
    push.is_told = true;
  }
  settle(key->second);
  if (first != nullptr) std::rethrow_exception(first);
}

void UnheldPushes::throw_of_all() {
  for (auto& [entry, key] : keys_) {
    settle(key);
    for (const Push& push : key.pushes) static_cast<void>(hear(*push.state));
    key = {};
  }
  const std::shared_ptr<AsyncState> first = std::exchange(first_, nullptr);
  if (first != nullptr) std::rethrow_exception(hear(*first));
}

}  // namespace tutti
