// SPDX-License-Identifier: Apache-2.0
// MPI's return codes as errors. Everything in this folder uses a communicator of our own with
// MPI_ERRORS_RETURN; without that, MPI would end the job before a code is returned.
#pragma once

#include <mpi.h>
#include <string>

#include "tutti/error.hpp"

namespace tutti::mpi {

/// Throws Error(communication, "MPI_Isend to rank 3: ...") unless `code` is MPI_SUCCESS.
inline void check(int code, const std::string& call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ErrorCode::communication, call + ": " + text);
}

}  // namespace tutti::mpi
