// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulated/fibre.hpp"

#include <cstring>
#include <cxxabi.h>
#include <new>
#include <sys/mman.h>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace tutti::simulated {

namespace {

constexpr int kMostGuarded = 4096;  // a guard splits a mapping, of which Linux allows 65,530
constexpr std::size_t kGuardBytes = 4096;

// Tells AddressSanitizer which stack is used next. `leaving` receives its state of the current
// stack; it is null if nobody returns to that stack.
void begin_switch([[maybe_unused]] void** leaving, [[maybe_unused]] const void* stack,
                  [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(leaving, stack, bytes);
#endif
}

void end_switch([[maybe_unused]] void* arriving, [[maybe_unused]] const void** from,
                [[maybe_unused]] std::size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(arriving, from, bytes);
#endif
}

}  // namespace

Stacks::Stacks(int count) : bytes_(static_cast<std::size_t>(count) * kBytes) {
  void* const mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(mapped);
  if (count > kMostGuarded) return;
  for (int i = 0; i < count; ++i) mprotect(stack(i), kGuardBytes, PROT_NONE);
}

Stacks::~Stacks() { munmap(data_, bytes_); }

Fibre::Fibre(std::byte* stack, std::function<void()> body) : stack_(stack), body_(std::move(body)) {
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = Stacks::kBytes;
  context_.uc_link = nullptr;
  void* const self = this;
  unsigned int halves[2];  // makecontext() only passes integers
  static_assert(sizeof halves == sizeof self);
  std::memcpy(halves, &self, sizeof halves);
  makecontext(&context_, reinterpret_cast<void (*)()>(&Fibre::enter), 2, halves[0], halves[1]);
}

void Fibre::enter(unsigned int first, unsigned int second) {
  const unsigned int halves[] = {first, second};
  void* self = nullptr;
  std::memcpy(&self, halves, sizeof self);
  static_cast<Fibre*>(self)->run();
}

void Fibre::run() {
  end_switch(nullptr, &caller_stack_, &caller_bytes_);
  body_();
  ended_ = true;
  begin_switch(nullptr, caller_stack_, caller_bytes_);
  setcontext(&caller_);
}

/// Swaps the exception state. Its layout is that of the Itanium C++ ABI, section 2.2.2, which all
/// compilers on Linux follow.
void Fibre::exchange(Exceptions& own) {
  void* const globals = abi::__cxa_get_globals();
  Exceptions current;
  std::memcpy(&current, globals, sizeof current);
  std::memcpy(globals, &own, sizeof own);
  own = current;
}

void Fibre::resume() {
  void* shadow = nullptr;
  exchange(exceptions_);
  begin_switch(&shadow, stack_, Stacks::kBytes);
  swapcontext(&caller_, &context_);
  end_switch(shadow, nullptr, nullptr);
  exchange(exceptions_);
}

void Fibre::leave() {
  begin_switch(&shadow_, caller_stack_, caller_bytes_);
  swapcontext(&context_, &caller_);
  end_switch(shadow_, &caller_stack_, &caller_bytes_);
}

}  // namespace tutti::simulated
