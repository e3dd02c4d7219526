// SPDX-License-Identifier: Apache-2.0
// The border of the C API: exceptions become a status and a text.
#pragma once

#include "tutti/c/status.h"

#include "runtime/c_api/place.hpp"

namespace tutti::c_api {

/// In a handler: keeps the exception for tutti_last_error, and returns its status.
int keep_current_exception(const char* function) noexcept;

/// Runs the body of an exported function: `guarded(__func__, [&](const Place& here) { ... })`.
template <class Body>
int guarded(const char* function, Body&& body) noexcept {
  try {
    body(Place{nullptr, function});
    return TUTTI_OK;
  } catch (...) {
    return keep_current_exception(function);
  }
}

/// What `read` makes of the arguments of a collective call. If it throws, all ranks get the error.
/// `ranks` is a KVStore or a Communicator.
template <class Ranks, class Read>
auto read_on_all(Ranks& ranks, Read&& read) {
  try {
    return read();
  } catch (...) {
    ranks.agree([] { throw; });
    throw;  // never reached: agree has thrown
  }
}

/// Takes part in an agreement with this rank's status. Errors: invalid_argument for an unknown one.
template <class Ranks>
void agree(const Place& here, Ranks& ranks, int status, const char* text) {
  ranks.agree([&] {
    if (status < TUTTI_OK || status > TUTTI_ERROR_DIVERGENCE) {
      throw_invalid_argument({&here, "status"}, "0 to " + std::to_string(TUTTI_ERROR_DIVERGENCE),
                             std::to_string(status));
    }
    if (status == TUTTI_OK) return;
    throw Error(static_cast<ErrorCode>(status), text == nullptr ? tutti_status_name(status) : text);
  });
}

}  // namespace tutti::c_api
