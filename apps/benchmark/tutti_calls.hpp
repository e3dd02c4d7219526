// SPDX-License-Identifier: Apache-2.0
// Tutti as a backend.
#pragma once

#include <tutti/communicator.hpp>

#include "apps/benchmark/work.hpp"

namespace apps::benchmark {

/// The function of Communicator for the collective. For pushpull: a store of its own that has the
/// job's tensors, and one KVStore::pushpull of all of them. Collective.
Call tutti_call(const Job& job, tutti::ReduceOp op, const tutti::Communicator& world);

}  // namespace apps::benchmark
