// SPDX-License-Identifier: Apache-2.0
// The structs behind the handles. Each begins with its kind, so that a handle of another kind is
// recognised.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tutti/c/kvstore.h"
#include "tutti/c/pending.h"
#include "tutti/c/preemption.h"
#include "tutti/kvstore.hpp"
#include "tutti/preemption.hpp"

#include "runtime/c_api/status.hpp"

namespace tutti::c_api {

enum class Kind : std::uint32_t {
  kvstore = 0x7B1A5E01,  // a number that memory is not likely to hold otherwise
  communicator,
  optimizer,
  buffer,
  preemption,
  pending,
};

/// Errors: invalid_argument for NULL, or a pointer that is not a handle of this kind.
void require_kind(const Place& place, const void* handle, Kind expected);

/// The handle that a function was given as its argument `name`.
template <class Handle>
Handle& open(const Place& here, const char* name, Handle* handle) {
  require_kind({&here, name}, handle, Handle::kKind);
  return *handle;
}

/// Ends a handle; NULL is no handle.
template <class Handle>
void destroy(const Place& here, const char* name, Handle* handle) {
  if (handle != nullptr) delete &open(here, name, handle);
}

}  // namespace tutti::c_api

struct tutti_kvstore {
  static constexpr auto kKind = tutti::c_api::Kind::kvstore;
  tutti::c_api::Kind kind = kKind;
  std::string type;
  /// Views that hold shapes for C. An updater may run beside the program's thread.
  std::unordered_map<tutti::Key, tutti::ConstTensorView> views{};
  std::mutex mutex_of_views{};
  std::atomic<std::thread::id> updating{};  ///< the thread that runs an updater, if any
  tutti::LoadResult loaded{};               ///< result of the last load
  std::string warnings{};
  struct Keys {
    std::vector<tutti::Key> keys;  ///< keys that hold the texts of as_structs
    std::vector<tutti_key> as_structs;
  } keys{};
  std::string statistics{};
  tutti::KVStore store;  ///< ends first: an updater under way uses the rest until then
};

struct tutti_communicator {
  static constexpr auto kKind = tutti::c_api::Kind::communicator;
  tutti::c_api::Kind kind = kKind;
  tutti::Communicator communicator;
  std::list<std::string> algorithms{};  ///< all texts that were returned, which stay valid
  std::string statistics{};
};

struct tutti_optimizer {
  static constexpr auto kKind = tutti::c_api::Kind::optimizer;
  tutti::c_api::Kind kind = kKind;
  std::shared_ptr<tutti::Optimizer> optimizer;
};

struct tutti_buffer {
  static constexpr auto kKind = tutti::c_api::Kind::buffer;
  tutti::c_api::Kind kind = kKind;
  tutti::Tensor tensor;
};

struct tutti_preemption {
  static constexpr auto kKind = tutti::c_api::Kind::preemption;
  tutti::c_api::Kind kind = kKind;
  tutti::PreemptionSignals signals{};
};

struct tutti_pending {
  static constexpr auto kKind = tutti::c_api::Kind::pending;
  tutti::c_api::Kind kind = kKind;
  tutti::Pending pending{};
};

namespace tutti::c_api {

/// Runs the body of an exported function on a store: body(place, the handle's store).
template <class Handle, class Body>
int on_store(const char* function, Handle* kv, Body&& body) noexcept {
  return guarded(function, [&](const Place& here) { body(here, open(here, "kv", kv).store); });
}

/// Runs a C function's body on a communicator: see on_store().
template <class Handle, class Body>
int on_communicator(const char* function, Handle* communicator, Body&& body) noexcept {
  return guarded(function, [&](const Place& here) {
    body(here, open(here, "communicator", communicator).communicator);
  });
}

}  // namespace tutti::c_api
