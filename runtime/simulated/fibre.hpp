// SPDX-License-Identifier: Apache-2.0
// A function that can be left in the middle and gone on with: one for each simulated rank.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <ucontext.h>

#include "runtime/base/unique_handle.hpp"

namespace tutti::simulated {

/// Stacks of many fibres in one mapping, of which only pages that are touched cost memory. There is
/// a page that must not be touched below each, unless they are more than a process may map.
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

/// Runs on the thread that resumes it, and on that one alone. What its body throws ends the
/// process, so a body catches.
class Fibre {
 public:
  /// `stack`: Stacks::kBytes, its own.
  Fibre(std::byte* stack, std::function<void()> body);
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  /// Goes on with the body until it calls leave() or returns. Not of a fibre that has ended.
  void resume();
  /// From within the body: returns when the fibre is resumed.
  void leave();
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  /// What the C++ runtime keeps per thread of exceptions that are being handled.
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
  // AddressSanitizer's own stacks, and where the caller's is.
  void* shadow_ = nullptr;
  const void* caller_stack_ = nullptr;
  std::size_t caller_bytes_ = 0;
};

}  // namespace tutti::simulated
