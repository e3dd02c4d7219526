// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/agree.hpp"

#include <new>

#include "tutti/error.hpp"

namespace tutti {

void agree(collectives::Engine& engine, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.scope() != ErrorScope::caller) throw;  // the other ranks know of it
    engine.throw_on_all_ranks(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    engine.throw_on_all_ranks(ErrorCode::out_of_memory, "no memory");
  } catch (const std::exception& error) {
    engine.throw_on_all_ranks(ErrorCode::user_code, error.what());
  } catch (...) {
    engine.throw_on_all_ranks(ErrorCode::user_code, "an exception of unknown type");
  }
  const auto describe = [] { return std::string("agree"); };
  engine.run({.kind = collectives::Kind::agreement, .segments = {}, .describe = describe});
}

}  // namespace tutti
