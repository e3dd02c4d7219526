// SPDX-License-Identifier: Apache-2.0
// An error of one rank, caught before it leaves the other ranks waiting.
#pragma once

#include <exception>
#include <new>
#include <optional>
#include <string>

#include "tutti/error.hpp"

namespace tutti::collectives {

/// An error of this rank that the other ranks have to learn of.
struct LocalError {
  ErrorCode code;
  std::string text;
  ErrorScope scope = ErrorScope::caller;  ///< the ranks that know of it already
  bool is_foreign = false;  ///< it is no tutti::Error, but was thrown by the program's code
};

/// Runs `body`, and calls handle(LocalError) while handling an exception of it. All places that
/// make one rank's error known to the others use this function, so they catch the same exceptions.
template <class Body, class Handle>
void catching(Body&& body, Handle&& handle) {
  try {
    body();
  } catch (const Error& error) {
    handle(LocalError{error.code(), error.what(), error.scope()});
  } catch (const std::bad_alloc&) {
    handle(LocalError{ErrorCode::out_of_memory, "no memory"});
  } catch (const std::exception& error) {
    handle(LocalError{.code = ErrorCode::user_code, .text = error.what(), .is_foreign = true});
  } catch (...) {
    handle(LocalError{
        .code = ErrorCode::user_code, .text = "an exception of unknown type", .is_foreign = true});
  }
}

/// Runs `body`, and returns its exception, if there is one. An Error that other ranks know of
/// already is rethrown.
template <class Body>
[[nodiscard]] std::optional<LocalError> caught(Body&& body) {
  std::optional<LocalError> own;
  catching(body, [&](const LocalError& error) {
    if (error.scope != ErrorScope::caller) throw;
    own = error;
  });
  return own;
}

}  // namespace tutti::collectives
