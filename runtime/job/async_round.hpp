// SPDX-License-Identifier: Apache-2.0
// AsyncRound: the ranks find out which jobs all of them have, and carry them out.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "tutti/settings.hpp"

#include "collectives/engine/engine.hpp"
#include "runtime/job/async_queues.hpp"
#include "runtime/job/async_state.hpp"

namespace tutti {

/// Sets how waits of the engine go during its lifetime, see Waiter::set_patience().
class Patiently {
 public:
  Patiently(collectives::Engine& engine, const collectives::Patience& patience, bool beside)
      : engine_(engine) {
    engine_.waiter().set_patience(&patience, beside);
  }
  ~Patiently() { engine_.waiter().set_patience(nullptr, false); }
  Patiently(const Patiently&) = delete;
  Patiently& operator=(const Patiently&) = delete;

 private:
  collectives::Engine& engine_;
};

/// Used by the thread that carries out calls, one at a time.
class AsyncRound {
 public:
  AsyncRound(collectives::Engine& engine, AsyncQueues& queues, AsyncWaiting& waiting,
             const Settings& settings);

  /// Makes one round, and carries out its batch, or naps if the ranks have no jobs in common.
  /// `is_beside`: on a thread beside the one that computes. An exception fails all jobs, because
  /// the queues of the ranks may no longer agree.
  void turn(bool is_beside);
  /// Counts the time that the program has waited so far. Requires that no call is pending.
  void settle() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] bool take_turn();
  [[nodiscard]] std::vector<std::uint8_t> own_counts();
  void meet(std::vector<std::uint8_t>& counts);
  void begin_step();
  void tell_step();
  std::uint64_t count_waits();
  void carry_out(const AsyncBatch& batch);
  [[nodiscard]] std::exception_ptr make_call(const AsyncBatch& batch, bool& is_complete);
  void carry_out_apart(std::span<const AsyncQueue> batch);
  void confirm(std::span<const AsyncQueue> batch);
  void end(std::span<const AsyncQueue> batch, const std::exception_ptr& error);
  [[noreturn]] void expire(std::vector<std::uint8_t> own);
  void learn_speed(std::size_t bytes, Clock::duration time);
  void napped_in_vain(Clock::time_point begin);

  collectives::Engine& engine_;
  AsyncQueues& queues_;
  AsyncWaiting& waiting_;
  Clock::duration deadline_;  ///< the largest duration if there is no deadline
  double bytes_per_second_;
  bool is_beside_ = false;
  collectives::AsyncStep step_{};  ///< the current step, or the last one until it is reported
  Clock::duration in_vain_{0};     ///< how long the ranks have had no jobs in common
  Clock::duration asked_at_{0};    ///< value of in_vain_ at the last interrupt check
};

}  // namespace tutti
