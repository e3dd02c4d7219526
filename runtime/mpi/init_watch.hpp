// SPDX-License-Identifier: Apache-2.0
// InitWatch: a deadline for MPI_Init, which waits for all processes of the job. Without it, a
// process that never calls MPI_Init, or a program without MPI, would make the others wait forever.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "tutti/launch.hpp"

namespace tutti::mpi {

/// During its lifetime, a thread observes how long this process has been in MPI_Init. After a tenth
/// of the deadline, but at least 3 s, ranks 0 and 1 print a warning. At the deadline the process
/// prints an error and ends with the exit code of a timeout. A job that was suspended does not
/// exceed it. A process that its launcher has started alone is not observed, because it waits for
/// nobody.
class InitWatch {
 public:
  /// `deadline` 0 means none; the thread then only prints the warning. Errors: out_of_memory if no
  /// thread can be started.
  InitWatch(const std::optional<Launch>& launch, std::chrono::duration<double> deadline);
  ~InitWatch();
  InitWatch(const InitWatch&) = delete;
  InitWatch& operator=(const InitWatch&) = delete;

 private:
  void watch();

  const int rank_;
  const std::chrono::duration<double> deadline_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_returned_ = false;
  std::thread thread_;
};

}  // namespace tutti::mpi
