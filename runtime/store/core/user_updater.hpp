// SPDX-License-Identifier: Apache-2.0
// Calls of a program's updater or optimizer.
#pragma once

#include <exception>
#include <string>

#include "tutti/error.hpp"
#include "tutti/key.hpp"

#include "runtime/job/group.hpp"

namespace tutti {

/// Called in a handler: fails the group, and throws an Error with the exception nested in it.
[[noreturn]] inline void throw_user_code(Group& group, const std::string& whose, const char* what) {
  const auto& topology = group.topology();
  const std::string text = name_of(topology, topology.rank) + ": " + whose + " threw: " + what;
  const bool is_reporter = group.engine().raise_failure(ErrorCode::user_code, text);
  std::throw_with_nested(Error(ErrorCode::user_code, text, ErrorScope::failed, is_reporter));
}

/// Runs `body`, which is code of the program; whose() names it. If it throws, the group fails,
/// because the other ranks may have updated their replicas.
/// Errors  user_code on all ranks, with the original nested on this one. A failure of the store
///         that the update met in a pull is passed on.
template <class Whose, class Body>
void run_user_code(Group& group, Whose whose, Body body) {
  group.engine().begin_update();
  try {
    body();
  } catch (const Error& error) {
    if (error.recoverable()) throw_user_code(group, whose(), error.what());
    group.engine().raise_failure(error.code(), error.what(),
                                 error.reporter() ? collectives::kThisRank : collectives::kNoRank);
    throw;
  } catch (const std::exception& error) {
    throw_user_code(group, whose(), error.what());
  } catch (...) {
    throw_user_code(group, whose(), "an exception of unknown type");
  }
  group.engine().end_update();
}

/// Runs the updater of a key by run_user_code().
template <class Body>
void run_updater(Group& group, const Key& key, Body body) {
  run_user_code(
      group, [&] { return "the updater of key " + to_string(key); }, body);
}

}  // namespace tutti
