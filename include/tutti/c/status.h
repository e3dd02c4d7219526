// SPDX-License-Identifier: Apache-2.0
// The status that the functions of the C API return, and the text of the last error. Conventions:
// tutti/tutti.h.
#ifndef TUTTI_C_STATUS_H
#define TUTTI_C_STATUS_H

#include "tutti/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Kinds of errors. The numbers are those of tutti::ErrorCode.
enum {
  TUTTI_OK = 0,
  TUTTI_ERROR_INVALID_ARGUMENT = 1,  ///< a call's arguments are wrong; nothing was changed
  TUTTI_ERROR_MISMATCH = 2,          ///< ranks made different calls; nothing was changed
  TUTTI_ERROR_COMMUNICATION = 3,     ///< a peer failed or left, or MPI reported an error
  TUTTI_ERROR_TIMEOUT = 4,           ///< a wait passed its deadline (TUTTI_TIMEOUT)
  TUTTI_ERROR_OUT_OF_MEMORY = 5,     ///< an allocation was refused, before any page was touched
  TUTTI_ERROR_IO = 6,                ///< a file could not be read or written
  TUTTI_ERROR_CORRUPT_FILE = 7,      ///< a file was read and its content is not what it should be
  TUTTI_ERROR_USER_CODE = 8,         ///< the program's own code failed: an updater, for example
  TUTTI_ERROR_DIVERGENCE = 9         ///< replicas that should be equal differ between ranks
};

/// The text of the last call of this thread that failed: what happened, where, what was expected
/// and got, what to do. Empty before the first. Never NULL; valid until this thread's next failure,
/// and unchanged by calls that succeed. At most 8191 bytes.
TUTTI_API const char* tutti_last_error(void);

/// 1 if the store or communicator of the last failed call can still be used, 0 if it has failed for
/// good: then it is only destroyed.
TUTTI_API int tutti_last_error_is_recoverable(void);

/// 1 on the one rank that should print the text, so that a job prints it once.
TUTTI_API int tutti_last_error_is_reporter(void);

/// The name of a status: "ok", "invalid_argument", "mismatch" and so on; "unknown" for a number
/// that is no status.
TUTTI_API const char* tutti_status_name(int status);

/// The process exit code that a program should end with: 0 done, 1 usage or configuration,
/// 2 failure at run time, 3 wrong data, 4 deadline passed.
TUTTI_API int tutti_exit_code(int status);

/// The version of the library, "0.1.0".
TUTTI_API const char* tutti_version(void);

#ifdef __cplusplus
}
#endif

#endif
