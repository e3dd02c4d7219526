// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/async_state.hpp"

#include <new>

#include "tutti/error.hpp"
#include "tutti/pending.hpp"

namespace tutti {

namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace

AsyncState::~AsyncState() {
  if (error_ == nullptr || error_was_seen_) return;
  if (waiting_->patience.is_given_up.load()) return;  // this has been reported
  try {
    waiting_->warn(what_ + " failed, and nobody waited for it: " + text_of(error_));
  } catch (const std::bad_alloc&) {  // no memory even for a warning
  }
}

void AsyncState::wait() {
  if (!ready()) waiting_->until([this] { return ready(); });
  const std::lock_guard lock(mutex_);
  if (error_ == nullptr) return;
  error_was_seen_ = true;
  std::rethrow_exception(error_);
}

void AsyncState::end_part(const std::exception_ptr& error, std::uint64_t failure) noexcept {
  if (error != nullptr) {
    const std::lock_guard lock(mutex_);
    if (error_ == nullptr) {
      error_ = error;
      failure_ = failure;
    }
  }
  left_.fetch_sub(1);
}

std::uint64_t AsyncState::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool Pending::ready() const noexcept { return state_ == nullptr || state_->ready(); }

void Pending::wait() const {
  if (state_ != nullptr) state_->wait();
}

}  // namespace tutti
