// SPDX-License-Identifier: Apache-2.0
#include "tutti/error.hpp"

namespace tutti {

const char* to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::mismatch:
      return "mismatch";
    case ErrorCode::communication:
      return "communication";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::io:
      return "io";
    case ErrorCode::corrupt_file:
      return "corrupt_file";
    case ErrorCode::user_code:
      return "user_code";
    case ErrorCode::divergence:
      return "divergence";
  }
  return "unknown";
}

int exit_code(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return 1;
    case ErrorCode::timeout:
      return 4;
    case ErrorCode::divergence:
      return 3;
    case ErrorCode::mismatch:
    case ErrorCode::communication:
    case ErrorCode::out_of_memory:
    case ErrorCode::io:
    case ErrorCode::corrupt_file:
    case ErrorCode::user_code:
      break;
  }
  return 2;
}

}  // namespace tutti
