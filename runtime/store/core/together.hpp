// SPDX-License-Identifier: Apache-2.0
// What several calls of a store need, so that all ranks fail together.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/engine/engine.hpp"

namespace tutti {

/// Runs a body that may fail on this rank alone. If it throws, all ranks throw the error, each in
/// the call that it is making. `call` names this one. Costs nothing if nothing is thrown.
template <class Body>
void throw_together(collectives::Engine& engine, const char* call, Body body) {
  if (const auto error = collectives::caught(body)) {
    engine.throw_on_all_ranks(error->code, std::string(call) + ": " + error->text);
  }
}

/// Runs a body that may fail on this rank alone when all ranks have changed something: what it
/// throws fails the group.
template <class Body>
void fail_together(collectives::Engine& engine, Body body) {
  if (const auto error = collectives::caught(body)) engine.fail(*error);
}

/// All ranks make this call, with equal digests; else all throw. Collective. Errors: mismatch.
inline void agree_on(collectives::Engine& engine, collectives::Verb verb, const std::string& call,
                     std::uint64_t digest) {
  const auto describe = [&] { return call; };
  engine.run({.kind = collectives::Kind::agreement,
              .digest = digest,
              .segments = {},
              .describe = describe,
              .verb = verb});
}

}  // namespace tutti
