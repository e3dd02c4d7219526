// SPDX-License-Identifier: Apache-2.0
// What a Pending refers to.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "collectives/wait.hpp"

namespace tutti {

/// What those who wait share with the thread that makes asynchronous calls.
struct AsyncWaiting {
  collectives::Patience patience{};
  /// Returns when it is true, which it becomes with a call that is complete. Not after all are.
  std::function<void(const std::function<bool()>& ready)> await;
  std::function<void(const std::string&)> warn;
  std::atomic<std::uint64_t> waits{0};         ///< of the program, that have ended
  std::atomic<std::uint64_t> waited_ticks{0};  ///< in them

  /// One wait, while this lives.
  class Timed {
   public:
    explicit Timed(AsyncWaiting& waiting) : waiting_(waiting) {
      waiting_.patience.waiters.fetch_add(1);
    }
    ~Timed() {
      waiting_.patience.waiters.fetch_sub(1);
      waiting_.waited_ticks.fetch_add(collectives::ticks() - begun_);
      waiting_.waits.fetch_add(1);
    }
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;

   private:
    AsyncWaiting& waiting_;
    std::uint64_t begun_ = collectives::ticks();
  };
};

/// One asynchronous call of the program: done when all its parts are.
class AsyncState {
 public:
  AsyncState(std::shared_ptr<AsyncWaiting> waiting, std::string what, std::uint32_t parts)
      : waiting_(std::move(waiting)), what_(std::move(what)), left_(parts) {}
  ~AsyncState();
  AsyncState(const AsyncState&) = delete;
  AsyncState& operator=(const AsyncState&) = delete;

  [[nodiscard]] bool ready() const { return left_.load(std::memory_order_acquire) == 0; }
  void wait();
  /// A part is done; the first error of any part is the call's.
  void end_part(const std::exception_ptr& error);

 private:
  std::shared_ptr<AsyncWaiting> waiting_;
  std::string what_;  ///< "push_async of key 3"
  std::mutex mutex_;
  std::exception_ptr error_;
  bool error_was_seen_ = false;
  std::atomic<std::uint32_t> left_;
};

}  // namespace tutti
