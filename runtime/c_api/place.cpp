// SPDX-License-Identifier: Apache-2.0
#include "runtime/c_api/place.hpp"

namespace tutti::c_api {

std::string Place::describe() const {
  std::string text = name;
  if (index >= 0) text += "[" + std::to_string(index) + "]";
  if (outer == nullptr) return text;
  return outer->describe() + (outer->outer == nullptr ? ": " : ".") + text;
}

void throw_invalid_argument(const Place& place, const std::string& expected,
                            const std::string& got) {
  throw Error(ErrorCode::invalid_argument,
              place.describe() + ": expected " + expected + ", got " + got);
}

}  // namespace tutti::c_api
