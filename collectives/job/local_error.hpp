// SPDX-License-Identifier: Apache-2.0
// An error of one rank, caught before it leaves the other ranks waiting.
#pragma once

#include <exception>
#include <new>
#include <optional>
#include <string>

#include "tutti/error.hpp"

namespace tutti::collectives {

/// What one rank has to tell the others.
struct LocalError {
  ErrorCode code;
  std::string text;
  ErrorScope scope = ErrorScope::caller;  ///< which ranks know of it already
  bool is_foreign = false;                ///< no Error: code of the program threw it
};

/// Runs `body`, and calls handle(LocalError) in the handler of what it throws: the one list of what
/// is caught where one rank's error has to become everybody's.
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

/// Runs `body`, and returns what it throws, if anything. An Error that other ranks know of already
/// goes through.
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
