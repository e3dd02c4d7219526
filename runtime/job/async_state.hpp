// SPDX-License-Identifier: Apache-2.0
// AsyncState: the state behind a Pending.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "collectives/wait/wait.hpp"

namespace tutti {

/// The state that waiting threads share with the thread that makes asynchronous calls.
struct AsyncWaiting {
  collectives::Patience patience{};
  /// Called only by until().
  std::function<void(const std::function<bool()>& ready)> await;
  std::function<void(const std::string&)> warn;
  std::atomic<std::uint64_t> waits{0};         ///< number of the program's waits that have ended
  std::atomic<std::uint64_t> waited_ticks{0};  ///< their total duration

  /// Returns when `ready` returns true, which a complete call ensures. Callable from any thread,
  /// even after the AsyncCalls are gone, because all calls are complete then.
  void until(const std::function<bool()>& ready) {
    const Visit visit(*this);
    if (visit.is_admitted()) await(ready);
  }
  /// Called when all calls are complete, before the AsyncCalls are destroyed. Returns when no
  /// thread is in await() any more.
  void close() {
    std::unique_lock lock(mutex_);
    is_closed_ = true;
    left_.wait(lock, [&] { return visitors_ == 0; });
  }

  /// Counts a wait during its lifetime.
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

 private:
  /// A visit keeps the AsyncCalls alive while a thread may be in await().
  class Visit {
   public:
    explicit Visit(AsyncWaiting& waiting) : waiting_(waiting) {
      const std::lock_guard lock(waiting_.mutex_);
      is_admitted_ = !waiting_.is_closed_;
      if (is_admitted_) ++waiting_.visitors_;
    }
    ~Visit() {
      if (!is_admitted_) return;
      const std::lock_guard lock(waiting_.mutex_);
      if (--waiting_.visitors_ == 0) waiting_.left_.notify_all();
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    [[nodiscard]] bool is_admitted() const { return is_admitted_; }

   private:
    AsyncWaiting& waiting_;
    bool is_admitted_ = false;
  };

  std::mutex mutex_;  ///< guards the following members
  std::condition_variable left_;
  int visitors_ = 0;
  bool is_closed_ = false;
};

/// One asynchronous call of the program, which is complete when all its parts are.
class AsyncState {
 public:
  AsyncState(std::shared_ptr<AsyncWaiting> waiting, std::string what, std::uint32_t parts)
      : waiting_(std::move(waiting)), what_(std::move(what)), left_(parts) {}
  ~AsyncState();
  AsyncState(const AsyncState&) = delete;
  AsyncState& operator=(const AsyncState&) = delete;

  [[nodiscard]] bool ready() const { return left_.load(std::memory_order_acquire) == 0; }
  void wait();
  /// Ends a part. The first error of any part becomes that of the call. `failure`: see
  /// AsyncQueues::end().
  void end_part(const std::exception_ptr& error, std::uint64_t failure) noexcept;
  /// Returns the number of the failure once the call is ready; 0 if it has not failed.
  [[nodiscard]] std::uint64_t failure() const;

 private:
  std::shared_ptr<AsyncWaiting> waiting_;
  std::string what_;  ///< such as "push_async of key 3"
  mutable std::mutex mutex_;
  std::exception_ptr error_;
  std::uint64_t failure_ = 0;
  bool error_was_seen_ = false;
  std::atomic<std::uint32_t> left_;
};

}  // namespace tutti
