// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/agree.hpp"

#include "collectives/local_error.hpp"

namespace tutti {

void agree(collectives::Engine& engine, const std::function<void()>& body) {
  if (const auto error = collectives::caught(body)) {
    engine.throw_on_all_ranks(error->code, error->text);
  }
  const auto describe = [] { return std::string("agree"); };
  engine.run({.kind = collectives::Kind::agreement, .segments = {}, .describe = describe});
}

}  // namespace tutti
