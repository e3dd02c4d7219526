// SPDX-License-Identifier: Apache-2.0
// Which processors a rank's threads may run on.
#pragma once

#include <pthread.h>

namespace tutti::collectives {

/// The processors that the thread which makes this may run on. A rank keeps those of its first
/// group for all threads that it makes later: meanwhile a library such as OpenMP may have bound the
/// program's thread to one core, and what a thread makes is bound as it is itself.
class ProcessorMask {
 public:
  ProcessorMask() : is_known_(pthread_getaffinity_np(pthread_self(), sizeof set_, &set_) == 0) {}
  /// Lets the calling thread run on all of them.
  void apply() const {
    if (is_known_) pthread_setaffinity_np(pthread_self(), sizeof set_, &set_);
  }

 private:
  cpu_set_t set_{};
  bool is_known_;
};

}  // namespace tutti::collectives
