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
};

/// Runs `body`, and returns what it throws, if anything: the one list of what is caught where one
/// rank's error has to become everybody's. An Error that other ranks know of already goes through.
template <class Body>
[[nodiscard]] std::optional<LocalError> caught(Body&& body) {
  try {
    body();
    return std::nullopt;
  } catch (const Error& error) {
    if (error.scope() != ErrorScope::caller) throw;
    return LocalError{error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    return LocalError{ErrorCode::out_of_memory, "no memory"};
  } catch (const std::exception& error) {
    return LocalError{ErrorCode::user_code, error.what()};
  } catch (...) {
    return LocalError{ErrorCode::user_code, "an exception of unknown type"};
  }
}

}  // namespace tutti::collectives
