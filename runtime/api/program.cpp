// SPDX-License-Identifier: Apache-2.0
#include "tutti/program.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <thread>
#include <unistd.h>

#include "tutti/error.hpp"
#include "tutti/gpu.hpp"

#include "collectives/kernels/reduce.hpp"
#include "collectives/wait/wait.hpp"
#include "runtime/base/unread_output.hpp"
#include "runtime/job/node_observer.hpp"
#include "runtime/mpi/session.hpp"

namespace tutti {

namespace {

void print(const std::string& name, const std::string& text) {
  const std::string line = name + ": error: " + text + "\n";
  std::fflush(stdout);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

/// Prefixes the text of an exception from this rank's own code with the rank and its last call.
std::string with_place(const std::string& text) {
  const std::string place = place_of_failure();
  const std::string rank = place.substr(0, place.find(", after "));
  if (!rank.empty() && text.starts_with(rank + ": ")) return place + text.substr(rank.size() + 2);
  return text.starts_with("rank ") ? text : place + text;
}

/// Prints the error that ends the program, without its place if there is no memory for that.
void report(const std::string& name, const char* text, bool is_own) noexcept {
  try {
    print(name, is_own ? with_place(text) : text);
  } catch (...) {
    for (const char* part : {name.c_str(), ": error: ", text, "\n"}) std::fputs(part, stderr);
  }
}

/// Ends the job, because the other ranks might wait for this one forever. A rank that learned of
/// the failure from another one leaves that rank time to print the reason first.
[[noreturn]] void end_job(int code, bool reporter) {
  constexpr auto kGrace = std::chrono::seconds(2);
  if (!reporter) std::this_thread::sleep_for(kGrace);
  if (mpi::is_running()) {
    wait_for_reader();
    mpi::abort_job(code);
  }
  std::_Exit(code);
}

void on_sigusr2(int /*signal*/) {
  const int error = errno;
  print_calls();
  errno = error;
}

/// Installs the handler, unless the program has one of its own.
void handle(int signal, void (*handler)(int)) noexcept {
  struct sigaction action {};
  if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

/// Lets a write beyond `ulimit -f` fail, as on a full disk, instead of ending the process. It is a
/// handler because programs that this one starts would inherit an ignored signal.
void on_sigxfsz(int /*signal*/) {}

/// Returns `code`, or an error if the output could not be written, as on a full disk. Under a
/// launcher the output goes to the launcher, whose own errors are not seen here.
int with_output(const std::string& name, int code) {
  constexpr int kLostOutput = 2;
  errno = 0;
  std::cout.flush();
  const bool is_flushed = std::fflush(stdout) == 0;
  if (std::cout && is_flushed && std::ferror(stdout) == 0) return code;
  const std::string why = errno == 0 ? "" : std::string(": ") + std::strerror(errno);
  print(name, "what was printed could not be written to standard output" + why +
                  "; see whether its disk is full, or ulimit -f too low");
  return code == 0 ? kLostOutput : code;
}

}  // namespace

int run_program(const std::string& name, const std::function<int()>& body) noexcept {
  handle(SIGUSR2, on_sigusr2);
  handle(SIGXFSZ, on_sigxfsz);
  try {
    return with_output(name, body());
  } catch (const Error& error) {
    const bool is_updater =
        error.scope() == ErrorScope::failed && error.code() == ErrorCode::user_code;
    const bool is_own = error.scope() == ErrorScope::caller || is_updater;
    if (error.reporter()) report(name, error.what(), is_own);
    const int code = exit_code(error.code());
    if (error.scope() == ErrorScope::agreed) return code;
    end_job(code, error.reporter());
  } catch (const std::exception& error) {
    report(name, error.what(), /*is_own=*/true);
  } catch (...) {
    report(name, "an exception of unknown type", /*is_own=*/true);
  }
  constexpr int kRuntimeFailure = 2;
  end_job(kRuntimeFailure, /*reporter=*/true);
}

void set_interrupt_check(bool (*check)() noexcept) noexcept {
  collectives::interrupt_check().store(check);
}

std::string version() { return TUTTI_VERSION; }

namespace {

/// Returns the version of MPI and its plug-in file, or why there is no MPI.
std::string describe_mpi() {
  try {
    const std::string version = mpi::version();  // loads it
    return version + " (" + mpi::plugin_file() + ")";
  } catch (const Error& error) {
    return std::string("none: ") + error.what();
  }
}

}  // namespace

std::string build_info() {
  return std::string("tutti ") + TUTTI_VERSION + "\ncompiler: " + __VERSION__ +
         "\nMPI: " + describe_mpi() +
         "\nvector instructions: " + collectives::vector_instructions() +
         "\nGPUs: " + describe_gpus() + "\n";
}

}  // namespace tutti
