// SPDX-License-Identifier: Apache-2.0
// Requests to stop, by a rank or by a signal, of which all ranks know after the same call. Threads
// as ranks.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <doctest/doctest.h>
#include <memory>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tutti/kvstore.hpp"
#include "tutti/preemption.hpp"

#include "collectives/wait/wait.hpp"
#include "support/checks.hpp"
#include "unit/threads.hpp"

using namespace tutti;

namespace {

Settings quiet() {
  Settings settings;
  settings.timeout = std::chrono::duration<double>(60);
  settings.log = tutti::LogLevel::quiet;
  return settings;
}

/// Makes one of small and large calls, barriers, and calls that one rank refuses.
void one_call(Communicator& comm, int call, Tensor& data) {
  if (call % 4 == 0) return comm.barrier();
  if (call % 4 != 3) return comm.allreduce(data);
  try {
    comm.agree([&] {
      if (comm.rank() == 1) throw Error(ErrorCode::io, "not now");
    });
  } catch (const Error& error) {
    if (!error.recoverable()) throw;
  }
}

/// Runs `body` in a process of its own, and returns its status.
int status_of(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("a request of one rank is known to all ranks after the same call") {
  std::mt19937 random(1);
  for (const auto& nodes : std::vector<std::vector<int>>{{1}, {4}, {2, 2}, {1, 3}, {1, 1, 1, 1}}) {
    const int size = nodes == std::vector<int>{1} ? 1 : 4;
    for (int trial = 0; trial < 8; ++trial) {
      const int asking = static_cast<int>(random() % static_cast<unsigned>(size));
      const int asked_after = static_cast<int>(random() % 9);
      std::vector<int> calls(static_cast<std::size_t>(size), 0);
      const auto outcomes = test::as_ranks(nodes, quiet(), [&](Communicator& comm) {
        Tensor data = Tensor::ones({trial % 2 == 0 ? 5 : 50000});
        int& made = calls[static_cast<std::size_t>(comm.rank())];
        while (!comm.stop_requested()) {
          if (comm.rank() == asking && made == asked_after) comm.request_stop();
          one_call(comm, made++, data);
        }
      });
      CHECK(test::all_returned(outcomes));
      for (const int made : calls) CHECK(made == asked_after + 1);
    }
  }
}

TEST_CASE("a signal asks the job to stop, instead of ending the process") {
  Communicator comm = Communicator::self(quiet());
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const PreemptionSignals signals;
    comm.barrier();
    CHECK_FALSE(signals.received());
    std::raise(signal);
    CHECK(signals.received());
  }
  comm.barrier();
  CHECK_FALSE(comm.stop_requested());  // the request of the signals is forgotten
  const PreemptionSignals signals;
  std::raise(SIGUSR1);
  CHECK_FALSE(comm.stop_requested());
  comm.barrier();
  CHECK(comm.stop_requested());
}

TEST_CASE("a process has one PreemptionSignals at a time") {
  const PreemptionSignals signals;
  std::raise(SIGUSR1);
  test::expect_error([] { PreemptionSignals(); }, test::kInvalid, {"has one already"});
  CHECK(signals.received());
}

TEST_CASE("a signal that is passed on ends the process, whether it came before or comes later") {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    for (const bool is_early : {true, false}) {
      const int status = status_of([&] {
        PreemptionSignals signals;
        if (is_early) std::raise(signal);
        signals.pass_on();
        if (!is_early) std::raise(signal);
      });
      CHECK(WIFSIGNALED(status));
      CHECK(WTERMSIG(status) == signal);
    }
  }
}

namespace {

std::atomic<int> own_signals{0};

void count_signal(int /*signal*/) { ++own_signals; }

/// Installs a handler, as a program does.
void handle_by_own(int signal) {
  struct sigaction action {};
  action.sa_handler = count_signal;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

TEST_CASE("a handler that the program installs after PreemptionSignals stays when that ends") {
  for (const bool passes_on : {false, true}) {
    const int status = status_of([&] {
      {
        PreemptionSignals signals;
        handle_by_own(SIGTERM);
        if (passes_on) signals.pass_on();
      }
      std::raise(SIGTERM);
      if (own_signals.load() != 1) _exit(1);
      std::raise(SIGUSR1);  // its handler was the library's
    });
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGUSR1);
  }
}

TEST_CASE("signals that were passed on can be taken again") {
  PreemptionSignals first;
  first.pass_on();
  const PreemptionSignals second;
  first.pass_on();
  std::raise(SIGUSR1);
  CHECK(second.received());
}

TEST_CASE("a signal that is delivered twice is one; a later one ends the process at once") {
  int both = -1;
  for (int i = 0; i < 3 && both != 0; ++i) {  // the process may be off its core for a second
    both = status_of([] {
      const PreemptionSignals signals;
      std::raise(SIGUSR1);
      std::raise(SIGTERM);
    });
  }
  CHECK(both == 0);
  for (const int first : {SIGTERM, SIGUSR1}) {
    const int status = status_of([&] {
      const PreemptionSignals signals;
      std::raise(first);
      sleep(2);
      std::raise(SIGTERM);
    });
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGTERM);
  }
}

TEST_CASE("after SIGTERM a call waits no longer than the grace time") {
  for (const auto& nodes : std::vector<std::vector<int>>{{2}, {1, 1}}) {
    const PreemptionSignals signals;
    Settings settings = quiet();
    settings.timeout = std::chrono::hours(1);  // the test's own limit is far below
    settings.grace = std::chrono::duration<double>(0.3);
    std::atomic<bool> done{false};
    const auto outcomes = test::as_ranks(nodes, settings, [&](Communicator& comm) {
      comm.barrier();
      if (comm.rank() == 1) {
        while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return;
      }
      const std::unique_ptr<bool, std::function<void(bool*)>> ending(new bool, [&](bool* flag) {
        delete flag;
        done = true;
      });
      std::raise(SIGTERM);
      comm.barrier();
    });
    REQUIRE(outcomes[0]);
    CHECK(outcomes[0]->code() == ErrorCode::timeout);
    CHECK_FALSE(outcomes[0]->recoverable());
    for (const char* words : {"rank 1 ", "SIGTERM", "0.3 s, TUTTI_GRACE", "nothing was saved"}) {
      CHECK(std::string(outcomes[0]->what()).find(words) != std::string::npos);
    }
  }
}

TEST_CASE("once all ranks know of SIGTERM, the deadline is the usual one again") {
  const PreemptionSignals signals;
  Settings settings = quiet();
  settings.grace = test::kShortDeadline;  // far more than ranks in step take
  const auto outcomes = test::as_ranks({2}, settings, [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 0) std::raise(SIGTERM);
    comm.barrier();
    if (comm.rank() == 1) std::this_thread::sleep_for(1.5 * test::kShortDeadline);
    comm.barrier();
  });
  CHECK(test::all_returned(outcomes));
}
