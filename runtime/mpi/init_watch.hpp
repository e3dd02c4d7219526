// SPDX-License-Identifier: Apache-2.0
// MPI_Init waits for all processes of the job, and knows no deadline: one that never calls it, or
// is a program without MPI, would keep the others for ever.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "tutti/launch.hpp"

namespace tutti::mpi {

/// While it lives, a thread looks how long this process has been in MPI_Init. After a tenth of the
/// deadline, and 3 s at least, ranks 0 and 1 say so. At the deadline the process says so and ends,
/// with the exit code of a timeout. A job that was suspended does not expire. A process that its
/// launcher has started alone is not watched: it waits for nobody.
class InitWatch {
 public:
  /// `deadline` 0: there is none, and the thread only says how long it takes.
  /// Errors: out_of_memory if no thread can be started.
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
