// SPDX-License-Identifier: Apache-2.0
// ProcessorMask: the processors that a rank's threads may run on.
#pragma once

#include <pthread.h>

namespace tutti::collectives {

/// The processors that the constructing thread may run on. A rank uses those from the creation of
/// its first group for all threads that it creates later. Meanwhile a library such as OpenMP may
/// have bound the program's thread to one core, and new threads inherit the binding of their
/// creator.
class ProcessorMask {
 public:
  ProcessorMask() : is_known_(pthread_getaffinity_np(pthread_self(), sizeof set_, &set_) == 0) {}
  /// Lets the calling thread run on all of these processors.
  void apply() const {
    if (is_known_) pthread_setaffinity_np(pthread_self(), sizeof set_, &set_);
  }

 private:
  cpu_set_t set_{};
  bool is_known_;
};

}  // namespace tutti::collectives
