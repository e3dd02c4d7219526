// SPDX-License-Identifier: Apache-2.0
// One round of asynchronous calls: the ranks find out what all of them have, and carry it out.
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

/// How waits of the engine are while this lives: see Waiter::set_patience().
class Patiently {
 public:
  Patiently(collectives::Engine& engine, const collectives::Patience& patience, bool beside)
      : engine_(engine) {
    engine_.set_patience(&patience, beside);
  }
  ~Patiently() { engine_.set_patience(nullptr, false); }
  Patiently(const Patiently&) = delete;
  Patiently& operator=(const Patiently&) = delete;

 private:
  collectives::Engine& engine_;
};

/// For the thread that carries out calls, one at a time.
class AsyncRound {
 public:
  AsyncRound(collectives::Engine& engine, AsyncQueues& queues, AsyncWaiting& waiting,
             const Settings& settings);

  /// One round, and what follows from it; a nap, if the ranks have no jobs in common. `is_beside`:
  /// a thread that computes. What it throws fails all jobs: the queues of the ranks are not as they
  /// were.
  void turn(bool is_beside);
  /// Counts what the program has waited until now. While nothing is under way.
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
  Clock::duration deadline_;  ///< the largest duration for none
  double bytes_per_second_;
  bool is_beside_ = false;
  collectives::AsyncStep step_{};  ///< under way, or the last one until it is told
  Clock::duration in_vain_{0};     ///< how long the ranks have had no jobs in common
  Clock::duration asked_at_{0};    ///< of in_vain_: when it was last asked whether to go on
};

}  // namespace tutti
