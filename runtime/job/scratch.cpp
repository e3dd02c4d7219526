// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/scratch.hpp"

#include <new>
#include <utility>

namespace tutti {

using collectives::ControlBlock;
using collectives::WideControlBlock;

Scratch::Scratch(std::shared_ptr<Arena> arena, ControlBlock* control)
    : arena_(std::move(arena)), control_(control) {
  control_->address = reinterpret_cast<std::uintptr_t>(arena_->data());
}

std::unique_ptr<Scratch> Scratch::first_of(std::shared_ptr<Arena> arena) {
  auto* control = reinterpret_cast<WideControlBlock*>(arena->data());
  std::unique_ptr<Scratch> scratch(new Scratch(std::move(arena), control));
  scratch->share();
  return scratch;
}

std::unique_ptr<Scratch> Scratch::another(std::shared_ptr<Arena> arena, bool is_wide) {
  std::byte* memory = arena->allocate(is_wide ? sizeof(WideControlBlock) : sizeof(ControlBlock));
  ControlBlock* control = is_wide ? new (memory) WideControlBlock : new (memory) ControlBlock;
  std::unique_ptr<Scratch> scratch(new Scratch(std::move(arena), control));
  scratch->allocated_.push_back(memory);
  return scratch;
}

Scratch::~Scratch() {
  if (is_shared_) return;
  for (std::byte* memory : allocated_) arena_->free(memory);
}

std::byte* Scratch::allocate(std::size_t bytes) {
  allocated_.reserve(allocated_.size() + 1);
  return allocated_.emplace_back(arena_->allocate(bytes));
}

void Scratch::retire(std::uint32_t ranks) {
  arena_->retire(std::move(allocated_), [control = control_, ranks] {
    return control->departed.load(std::memory_order_acquire) == ranks;
  });
  allocated_.clear();
}

}  // namespace tutti
