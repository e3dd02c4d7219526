// SPDX-License-Identifier: Apache-2.0
#include "tutti/program.hpp"

#include <chrono>
#include <cstdio>
#include <thread>

#include "tutti/error.hpp"

#include "collectives/reduce.hpp"
#include "runtime/mpi/session.hpp"
#include "runtime/mpi/version.hpp"

namespace tutti {

namespace {

void print(const std::string& name, const char* text) {
  const std::string line = name + ": error: " + text + "\n";
  std::fflush(stdout);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

/// Ends the job, because the other ranks may wait for this one without end. A rank that learned of
/// the failure from another leaves it time to print the reason first.
[[noreturn]] void end_job(int code, bool reporter) {
  constexpr auto kGrace = std::chrono::seconds(2);
  if (!reporter) std::this_thread::sleep_for(kGrace);
  if (mpi::is_running()) mpi::abort_job(code);
  std::_Exit(code);
}

}  // namespace

int run_program(const std::string& name, const std::function<int()>& body) noexcept {
  try {
    return body();
  } catch (const Error& error) {
    if (error.reporter()) print(name, error.what());
    const int code = exit_code(error.code());
    if (error.scope() == ErrorScope::agreed) return code;
    end_job(code, error.reporter());
  } catch (const std::exception& error) {
    print(name, error.what());
  } catch (...) {
    print(name, "an exception of unknown type");
  }
  constexpr int kRuntimeFailure = 2;
  end_job(kRuntimeFailure, /*reporter=*/true);
}

std::string version() { return TUTTI_VERSION; }

std::string build_info() {
  return std::string("tutti ") + TUTTI_VERSION + "\ncompiler: " + __VERSION__ +
         "\nMPI: " + mpi::version() +
         "\nvector instructions: " + collectives::vector_instructions() + "\nGPU support: no\n";
}

}  // namespace tutti
