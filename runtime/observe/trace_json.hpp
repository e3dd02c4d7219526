// SPDX-License-Identifier: Apache-2.0
// A rank's spans as events of a Chrome trace.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/engine.hpp"

namespace tutti::observe {

/// JSON objects, a line each, with commas between them. Times count from `origin_ns` of
/// CLOCK_MONOTONIC.
///
///   process  rank + 1 (0 is the idle process to some viewers), named "rank 3, host a"
///   slice    a call: "push of key 3", with its bytes; inside it, one after the other, what it did
std::string trace_events(collectives::Engine& engine, std::int64_t origin_ns);

}  // namespace tutti::observe
