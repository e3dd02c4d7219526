// SPDX-License-Identifier: Apache-2.0
// WriteSignalsBlocked: blocks the signals that the kernel sends to a thread whose write fails.
#pragma once

#include <cerrno>
#include <csignal>
#include <ctime>

namespace tutti {

/// During its lifetime, a write of this thread beyond `ulimit -f` fails with EFBIG, and one to a
/// pipe without a reader with EPIPE. Otherwise both would raise a signal that ends the process.
class WriteSignalsBlocked {
 public:
  WriteSignalsBlocked() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGXFSZ);
    sigaddset(&signals_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    for (const int signal : {SIGXFSZ, SIGPIPE}) {
      // A pending signal of the program.
      if (sigismember(&pending, signal) == 1) sigdelset(&signals_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~WriteSignalsBlocked() {
    const int error = errno;
    constexpr timespec kNoTime{};
    while (sigtimedwait(&signals_, nullptr, &kNoTime) > 0 || errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  WriteSignalsBlocked(const WriteSignalsBlocked&) = delete;
  WriteSignalsBlocked& operator=(const WriteSignalsBlocked&) = delete;

 private:
  sigset_t signals_{};
  sigset_t before_{};
};

}  // namespace tutti
