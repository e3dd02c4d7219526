// SPDX-License-Identifier: Apache-2.0
// Signals that the kernel sends to a thread whose write it refuses.
#pragma once

#include <cerrno>
#include <csignal>
#include <ctime>

namespace tutti {

/// While it lives, a write of this thread beyond `ulimit -f` fails with EFBIG, and one into a pipe
/// that nobody reads with EPIPE. Without it both are signals, which end a process.
class WriteSignalsBlocked {
 public:
  WriteSignalsBlocked() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGXFSZ);
    sigaddset(&signals_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    for (const int signal : {SIGXFSZ, SIGPIPE}) {
      if (sigismember(&pending, signal) == 1) sigdelset(&signals_, signal);  // the program's own
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
