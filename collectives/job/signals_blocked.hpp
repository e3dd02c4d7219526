// SPDX-License-Identifier: Apache-2.0
// SignalsBlocked: keeps the program's signals away from threads of the library.
#pragma once

#include <csignal>

namespace tutti::collectives {

/// Threads that are created during its lifetime receive no signals, except those for their own
/// faults. All others are for the program's threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int mistake : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT}) {
      sigdelset(&blocked, mistake);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace tutti::collectives
