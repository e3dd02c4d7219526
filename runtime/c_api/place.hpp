// SPDX-License-Identifier: Apache-2.0
// What is wrong with an argument, and where it stands.
#pragma once

#include <string>

#include "tutti/error.hpp"

namespace tutti::c_api {

/// Where an argument stands: "tutti_kvstore_push: items[1].values[0].dtype". A chain through the
/// stack, put into words only for an error.
struct Place {
  const Place* outer;  ///< null for the function itself
  const char* name;
  int index = -1;  ///< in a list

  [[nodiscard]] std::string describe() const;
};

/// Throws invalid_argument: "<place>: expected <expected>, got <got>".
[[noreturn]] void throw_invalid_argument(const Place& place, const std::string& expected,
                                         const std::string& got);

/// Runs `body`; an error's text gets the place in front.
template <class Body>
auto in_place(const Place& place, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    throw Error(error.code(), place.describe() + ": " + error.what(), error.scope(),
                error.reporter());
  }
}

/// What a pointer that may not be null points to: a result's place, or an argument.
template <class T>
T& required(const Place& here, const char* name, T* pointer) {
  if (pointer == nullptr) throw_invalid_argument({&here, name}, "a pointer", "NULL");
  return *pointer;
}

}  // namespace tutti::c_api
