// SPDX-License-Identifier: Apache-2.0
// Tutti as a backend.
#pragma once

#include <tutti/communicator.hpp>

#include "apps/benchmark/options.hpp"
#include "apps/benchmark/work.hpp"

namespace apps::benchmark {

/// The function of Communicator for the collective. For pushpull: a store of its own that has the
/// job's tensors, and one KVStore::pushpull of all of them, compressed as the options say.
/// Collective.
Call tutti_call(const Job& job, const Options& options, const tutti::Communicator& world);

}  // namespace apps::benchmark
