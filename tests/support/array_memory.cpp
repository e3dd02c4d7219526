// SPDX-License-Identifier: Apache-2.0
#include "tests/support/array_memory.hpp"

#include <new>

namespace {

thread_local std::size_t most_of_array = test::kAnyArray;

}  // namespace

namespace test {

void set_most_of_array(std::size_t bytes) { most_of_array = bytes; }

}  // namespace test

void* operator new[](std::size_t bytes) {
  if (bytes > most_of_array) throw std::bad_alloc();
  return ::operator new(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return bytes > most_of_array ? nullptr : ::operator new(bytes, std::nothrow);
}
void operator delete[](void* array) noexcept { ::operator delete(array); }
void operator delete[](void* array, std::size_t) noexcept { ::operator delete(array); }
