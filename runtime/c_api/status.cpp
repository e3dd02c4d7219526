// SPDX-License-Identifier: Apache-2.0
#include "runtime/c_api/status.hpp"

#include <cstdio>
#include <new>

namespace tutti::c_api {

namespace {

static_assert(TUTTI_ERROR_INVALID_ARGUMENT == static_cast<int>(ErrorCode::invalid_argument));
static_assert(TUTTI_ERROR_MISMATCH == static_cast<int>(ErrorCode::mismatch));
static_assert(TUTTI_ERROR_COMMUNICATION == static_cast<int>(ErrorCode::communication));
static_assert(TUTTI_ERROR_TIMEOUT == static_cast<int>(ErrorCode::timeout));
static_assert(TUTTI_ERROR_OUT_OF_MEMORY == static_cast<int>(ErrorCode::out_of_memory));
static_assert(TUTTI_ERROR_IO == static_cast<int>(ErrorCode::io));
static_assert(TUTTI_ERROR_CORRUPT_FILE == static_cast<int>(ErrorCode::corrupt_file));
static_assert(TUTTI_ERROR_USER_CODE == static_cast<int>(ErrorCode::user_code));
static_assert(TUTTI_ERROR_DIVERGENCE == static_cast<int>(ErrorCode::divergence));

/// The last error of a thread. Its text needs no allocation, so keeping it cannot fail.
struct LastError {
  char text[8192] = {};
  bool recoverable = true;
  bool reporter = true;
};
thread_local LastError last_error;

}  // namespace

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

int keep_current_exception(const char* function) noexcept {
  const auto keep = [](ErrorCode code, const char* before, const char* text) {
    std::snprintf(last_error.text, sizeof last_error.text, "%s%s", before, text);
    return static_cast<int>(code);
  };
  last_error.recoverable = true;
  last_error.reporter = true;
  try {
    throw;
  } catch (const Error& error) {
    last_error.recoverable = error.recoverable();
    last_error.reporter = error.reporter();
    return keep(error.code(), "", error.what());
  } catch (const std::bad_alloc&) {
    return keep(ErrorCode::out_of_memory, function, ": no memory");
  } catch (const std::exception& error) {
    last_error.recoverable = false;
    return keep(ErrorCode::user_code, "", error.what());
  } catch (...) {
    last_error.recoverable = false;
    return keep(ErrorCode::user_code, function, ": an exception of unknown type");
  }
}

}  // namespace tutti::c_api

using tutti::ErrorCode;
using tutti::c_api::last_error;

const char* tutti_last_error() { return last_error.text; }
int tutti_last_error_is_recoverable() { return last_error.recoverable ? 1 : 0; }
int tutti_last_error_is_reporter() { return last_error.reporter ? 1 : 0; }

const char* tutti_status_name(int status) {
  return status == TUTTI_OK ? "ok" : to_string(static_cast<ErrorCode>(status));
}

int tutti_exit_code(int status) {
  return status == TUTTI_OK ? 0 : exit_code(static_cast<ErrorCode>(status));
}

const char* tutti_version() { return TUTTI_VERSION; }
