// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/forks.hpp"

#include <atomic>
#include <pthread.h>

namespace tutti {

namespace {

std::atomic<unsigned> forks{0};

}  // namespace

unsigned num_forks() noexcept {
  static const bool is_counted =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); }) == 0;
  static_cast<void>(is_counted);
  return forks.load(std::memory_order_relaxed);
}

}  // namespace tutti
