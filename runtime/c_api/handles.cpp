// SPDX-License-Identifier: Apache-2.0
#include "runtime/c_api/handles.hpp"

#include <cstring>

namespace tutti::c_api {

namespace {

const char* to_string(Kind kind) {
  switch (kind) {
    case Kind::kvstore:
      return "a tutti_kvstore";
    case Kind::communicator:
      return "a tutti_communicator";
    case Kind::optimizer:
      return "a tutti_optimizer";
    case Kind::buffer:
      return "a tutti_buffer";
    case Kind::preemption:
      return "a tutti_preemption";
  }
  return "what is no handle of this library";
}

}  // namespace

void require_kind(const Place& place, const void* handle, Kind expected) {
  if (handle == nullptr) throw_invalid_argument(place, to_string(expected), "NULL");
  Kind found{};
  std::memcpy(&found, handle, sizeof found);  // of whatever type it is
  if (found != expected) throw_invalid_argument(place, to_string(expected), to_string(found));
}

}  // namespace tutti::c_api
