// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/forks.hpp"

#include <atomic>
#include <pthread.h>
#include <string>

#include "tutti/error.hpp"

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

void throw_forked(int rank) {
  throw Error(
      ErrorCode::invalid_argument,
      "this process was forked by rank " + std::to_string(rank) +
          ", whose stores and communicators it may not use; make a \"local\" store here, or "
          "make the calls in the rank itself");
}

}  // namespace tutti
