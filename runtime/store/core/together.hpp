// SPDX-License-Identifier: Apache-2.0
// What several calls of a store need, so that all ranks fail together.
#pragma once

#include <cstdint>
#include <new>
#include <string>

#include "tutti/error.hpp"

#include "collectives/engine.hpp"

namespace tutti {

/// Runs a body that may fail on this rank alone. If it throws, all ranks throw the error, each in
/// the call that it is making. `call` names this one. Costs nothing if nothing is thrown.
template <class Body>
void throw_together(collectives::Engine& engine, const char* call, Body body) {
  try {
    body();
  } catch (const Error& error) {
    engine.throw_on_all_ranks(error.code(), std::string(call) + ": " + error.what());
  } catch (const std::bad_alloc&) {
    engine.throw_on_all_ranks(ErrorCode::out_of_memory, std::string(call) + ": no memory");
  }
}

/// All ranks make this call, with equal digests; else all throw. Collective. Errors: mismatch.
inline void agree_on(collectives::Engine& engine, const std::string& call, std::uint64_t digest) {
  const auto describe = [&] { return call; };
  engine.run({.kind = collectives::Kind::agreement,
              .digest = digest,
              .segments = {},
              .describe = describe});
}

}  // namespace tutti
