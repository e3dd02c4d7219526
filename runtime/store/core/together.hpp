// SPDX-License-Identifier: Apache-2.0
// Helpers by which all ranks fail together, for calls of a store.
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

/// Runs a body that may fail on this rank alone after all ranks have changed something: its error
/// fails the group.
template <class Body>
void fail_together(collectives::Engine& engine, Body body) {
  if (const auto error = collectives::caught(body)) engine.fail(*error);
}

/// Compares digests of all ranks, which all make this call. If digests differ, all throw.
/// Collective. Errors: mismatch.
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
