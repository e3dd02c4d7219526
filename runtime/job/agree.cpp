// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/agree.hpp"

#include <optional>

#include "collectives/job/local_error.hpp"

namespace tutti {

namespace {

/// Returns the exception of `body`, even if ranks have agreed on it: these may be ranks of another
/// group, or only some of this one. Only a failure of this group is known to all of its ranks, and
/// is rethrown.
std::optional<collectives::LocalError> error_of(const collectives::Engine& engine,
                                                const std::function<void()>& body) {
  std::optional<collectives::LocalError> own;
  collectives::catching(body, [&](const collectives::LocalError& error) {
    if (error.scope != ErrorScope::caller && engine.failed()) throw;
    own = error;
  });
  return own;
}

}  // namespace

void agree(collectives::Engine& engine, const std::function<void()>& body) {
  if (const auto error = error_of(engine, body)) {
    engine.throw_on_all_ranks(error->code, error->text);
  }
  const auto describe = [] { return std::string("agree"); };
  engine.run({.kind = collectives::Kind::agreement, .segments = {}, .describe = describe});
}

}  // namespace tutti
