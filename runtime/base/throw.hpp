// SPDX-License-Identifier: Apache-2.0
// Short forms of throwing an Error.
#pragma once

#include <string>

#include "tutti/error.hpp"

namespace tutti {

[[noreturn]] inline void throw_invalid_argument(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, why);
}

[[noreturn]] inline void throw_corrupt_file(const std::string& why) {
  throw Error(ErrorCode::corrupt_file, why);
}

}  // namespace tutti
