// SPDX-License-Identifier: Apache-2.0
#include "tutti/preemption.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <unistd.h>
#include <utility>

#include "tutti/error.hpp"

#include "runtime/job/stop_flag.hpp"

namespace tutti {

using collectives::Stop;

namespace {

constexpr std::array kSignals{SIGTERM, SIGUSR1};
constexpr std::int64_t kSameSignalNs = 1'000'000'000;

/// The state of the signal handler, and the handlers that it replaced. Global, because signals are.
struct Handlers {
  std::atomic<bool> installed{false};
  std::atomic<std::int64_t> first_ns{0};
  std::array<struct sigaction, kSignals.size()> before{};
  std::atomic<pid_t> process{0};
};

Handlers& handlers() noexcept {
  static Handlers handlers;
  return handlers;
}

std::int64_t now_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void on_signal(int signal);

/// Restores the previous handlers, unless the program has installed others since. Safe in a signal
/// handler.
void put_back() noexcept {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction now {};
    const bool is_known = sigaction(kSignals[i], nullptr, &now) == 0;
    const bool has_information =
        (now.sa_flags & SA_SIGINFO) != 0;  // such a handler is another function
    if (!is_known || has_information || now.sa_handler != on_signal) continue;
    sigaction(kSignals[i], &handlers().before[i], nullptr);
  }
}

/// Handles a signal in a forked process, which is no rank.
void handle_as_before(int signal) {
  put_back();
  std::raise(signal);
}

/// The signal handler. It only calls functions that are safe in one. A signal that is raised again
/// is blocked until the handler returns; then it ends the process.
void on_signal(int signal) {
  const int error = errno;
  if (handlers().process.load() != getpid()) {
    handle_as_before(signal);
    errno = error;
    return;
  }
  std::int64_t first = 0;
  const std::int64_t now = now_ns();
  handlers().first_ns.compare_exchange_strong(first, now);
  if (first != 0 && now - first > kSameSignalNs) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  } else if (signal == SIGTERM) {
    stop_flag().store(Stop::terminating);
  } else {
    Stop none = Stop::none;
    stop_flag().compare_exchange_strong(none, Stop::requested);
  }
  errno = error;
}

/// Removes the handlers, and returns the request that signals have made.
Stop remove_handlers() noexcept {
  put_back();
  const Stop asked = stop_flag().exchange(Stop::none);
  handlers().installed = false;
  return asked;
}

}  // namespace

PreemptionSignals::PreemptionSignals() {
  Handlers& own = handlers();  // both statics are initialised here, not in the handler
  if (own.installed.exchange(true)) {
    throw Error(ErrorCode::invalid_argument,
                "PreemptionSignals: this process has one already; make it once, in main");
  }
  own.first_ns = 0;
  own.process = getpid();
  stop_flag().store(Stop::none);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &own.before[i]);
  }
}

PreemptionSignals::~PreemptionSignals() {
  if (has_signals_) remove_handlers();
}

void PreemptionSignals::pass_on() noexcept {
  if (!std::exchange(has_signals_, false)) return;
  const Stop asked = remove_handlers();
  if (asked != Stop::none) std::raise(asked == Stop::terminating ? SIGTERM : SIGUSR1);
}

bool PreemptionSignals::received() const noexcept {
  return has_signals_ && stop_flag().load() != Stop::none;
}

}  // namespace tutti
