// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/agree.hpp"

#include <optional>

#include "collectives/job/local_error.hpp"

namespace tutti {

namespace {

/// What `body` throws, also what ranks have agreed on before: these may be ranks of another group,
/// or not all of this one. Only a failure of this group is known to all of its ranks.
std::optional<collectives::LocalError> error_of(const collectives::Engine& engine,
                                                const std::function<void()>& body) {
  try {
    return collectives::caught(body);
  } catch (const Error& error) {
    if (engine.failed()) throw;
    return collectives::LocalError{error.code(), error.what()};
  }
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
