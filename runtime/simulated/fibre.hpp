// SPDX-License-Identifier: Apache-2.0
// Fibre: a function that can be suspended and resumed. There is one for each simulated rank.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <ucontext.h>

#include "runtime/base/unique_handle.hpp"

namespace tutti::simulated {

/// The stacks of many fibres in one mapping, of which only used pages take memory. Below each stack
/// is a guard page, unless there are more of them than a process can map.
class Stacks {
 public:
  static constexpr std::size_t kBytes = std::size_t{256} << 10;

  explicit Stacks(int count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  [[nodiscard]] std::byte* stack(int index) const {
    return data_ + static_cast<std::size_t>(index) * kBytes;
  }

 private:
  std::byte* data_;
  std::size_t bytes_;
};

/// Runs only on the thread that resumes it. An exception that leaves its body ends the process, so
/// the body must catch.
class Fibre {
 public:
  /// `stack`: Stacks::kBytes for this fibre alone.
  Fibre(std::byte* stack, std::function<void()> body);
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  /// Continues the body until it calls leave() or returns. The fibre must not have ended.
  void resume();
  /// Suspends the body, which calls it, until the fibre is resumed.
  void leave();
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  /// The state that the C++ runtime keeps for each thread about exceptions being handled.
  struct Exceptions {
    void* caught = nullptr;
    unsigned int uncaught = 0;
  };
  static void enter(unsigned int first, unsigned int second);
  void run();
  static void exchange(Exceptions& own);

  std::byte* stack_;
  std::function<void()> body_;
  ucontext_t context_{};
  ucontext_t caller_{};
  Exceptions exceptions_;
  bool ended_ = false;
  // AddressSanitizer's state of this stack, and the caller's stack.
  void* shadow_ = nullptr;
  const void* caller_stack_ = nullptr;
  std::size_t caller_bytes_ = 0;
};

}  // namespace tutti::simulated
