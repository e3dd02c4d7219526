// SPDX-License-Identifier: Apache-2.0
// Errors of the C API: naming the argument, and turning an exception into a status and a text.
#pragma once

#include <string>

#include "tutti/c/status.h"
#include "tutti/error.hpp"

namespace tutti::c_api {

/// The place of an argument in a call: "tutti_kvstore_push: items[1].values[0].dtype". A chain
/// through the stack, which becomes a text only for an error.
struct Place {
  const Place* outer;  ///< null for the function itself
  const char* name;
  int index = -1;  ///< index in a list; -1 if it is not in one

  [[nodiscard]] std::string describe() const;
};

/// Throws invalid_argument: "<place>: expected <expected>, got <got>".
[[noreturn]] void throw_invalid_argument(const Place& place, const std::string& expected,
                                         const std::string& got);

/// Runs `body`, and puts the place in front of an error's text.
template <class Body>
auto in_place(const Place& place, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    throw Error(error.code(), place.describe() + ": " + error.what(), error.scope(),
                error.reporter());
  }
}

/// The object behind a pointer that may not be null: an argument, or the target of a result.
template <class T>
T& required(const Place& here, const char* name, T* pointer) {
  if (pointer == nullptr) throw_invalid_argument({&here, name}, "a pointer", "NULL");
  return *pointer;
}

/// Called in a handler: keeps the exception for tutti_last_error, and returns its status.
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

/// Returns the arguments of a collective call that `read` converts. If it throws, all ranks get the
/// error. `ranks` is a KVStore or a Communicator.
template <class Ranks, class Read>
auto read_on_all(Ranks& ranks, Read&& read) {
  try {
    return read();
  } catch (...) {
    ranks.agree([] { throw; });
    throw;  // never reached: agree has thrown
  }
}

/// Takes part in an agreement with this rank's status. Errors: invalid_argument for an unknown
/// status.
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
