// SPDX-License-Identifier: Apache-2.0
// The one exception type of the library.
#pragma once

#include <stdexcept>
#include <string>

#include "tutti/export.h"

namespace tutti {

/// Kinds of errors. The numbers are those of the C API; 0 is no error.
enum class ErrorCode {
  invalid_argument = 1,  ///< a call's arguments are wrong; nothing was changed
  mismatch,              ///< ranks made different calls; nothing was changed
  communication,         ///< a peer failed or left, or MPI reported an error
  timeout,               ///< a wait passed its deadline (TUTTI_TIMEOUT)
  out_of_memory,         ///< an allocation was refused, before any page was touched
  io,                    ///< a file could not be read or written
  corrupt_file,          ///< a file was read and its content is not what it should be
  user_code,             ///< the program's own code threw: an updater, or the body of agree();
                         ///< an updater's exception is nested in it
  divergence,            ///< replicas that should be equal differ between ranks
};

/// The name as it is printed, for example "mismatch".
TUTTI_API const char* to_string(ErrorCode code) noexcept;

/// The process exit code that a program should end with after this error:
/// 1 usage or configuration, 2 failure at run time, 3 wrong data, 4 deadline passed.
TUTTI_API int exit_code(ErrorCode code) noexcept;

/// How far an error reaches: who else throws it, and so who should print it.
enum class ErrorScope {
  caller,  ///< thrown on this rank alone
  agreed,  ///< every rank throws the same error from the same call; all stay usable
  failed,  ///< the communicator is failed for good; peers throw at their next collective call
};

/// The exception that every function of the library throws. The text says what happened, where
/// (rank, host, key), what was expected and what was found, and what to do.
class TUTTI_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text, ErrorScope scope = ErrorScope::caller,
        bool reporter = true)
      : std::runtime_error(text), code_(code), scope_(scope), reporter_(reporter) {}

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  [[nodiscard]] ErrorScope scope() const noexcept { return scope_; }

  /// True if the store or communicator can still be used after this error.
  [[nodiscard]] bool recoverable() const noexcept { return scope_ != ErrorScope::failed; }

  /// True on the one rank that should print the text, so that a job prints it once.
  [[nodiscard]] bool reporter() const noexcept { return reporter_; }

 private:
  ErrorCode code_;
  ErrorScope scope_;
  bool reporter_;
};

}  // namespace tutti
