// SPDX-License-Identifier: Apache-2.0
// How a program of an mpirun job runs and ends; the version of the library.
#pragma once

#include <functional>
#include <string>

#include "tutti/export.h"

namespace tutti {

/// Runs `body` and returns the process exit code. An exception of `body` is printed as one line on
/// standard error, once for the job where every rank fails alike, and becomes an exit code: 1 usage
/// or configuration, 2 failure at run time, 3 replicas differ, 4 deadline passed. If other ranks
/// cannot know of the failure, the whole job is ended, so that none waits for this one. If its
/// standard output cannot be written, the exit code 0 becomes 2.
///
///     int main(int argc, char** argv) {
///       return tutti::run_program("my-program", [&] { return train(argc, argv); });
///     }
TUTTI_API int run_program(const std::string& name, const std::function<int()>& body) noexcept;

/// For bindings of other languages: a call that waits for other ranks asks `check` about every
/// 50 ms, in the thread that made the call or in one of the library. True ends the wait: the call
/// throws (communication), and the communicator has failed as after any lost rank. A wait for an
/// asynchronous call throws alone where a thread of the library goes on with it. Null, the default,
/// asks nobody. One per process. Any thread.
TUTTI_API void set_interrupt_check(bool (*check)() noexcept) noexcept;

/// The version of the library, "0.1.0".
TUTTI_API std::string version();

/// Library version, compiler, MPI and the vector instructions in use: a few lines, for --version.
TUTTI_API std::string build_info();

}  // namespace tutti
