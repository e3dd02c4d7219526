// SPDX-License-Identifier: Apache-2.0
// A trace of all ranks: a rank's spans as events of Chrome's format, and the file that they go to.
//
// All ranks of a host write to one file, one after the other:
//
//   [                                     A JSON array of events, one to a line. It is whole after
//   {"ph":"M", ... "job 1f3a..."},        every rank, because a rank overwrites the end.
//   {"ph":"X", ...},
//   {"ph":"X", ...}
//   ]
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "collectives/engine/engine.hpp"

namespace tutti::observe {

/// JSON objects, a line each, with commas between them. Times count from `origin_ns` of
/// CLOCK_MONOTONIC.
///
///   process  rank + 1 (0 is the idle process to some viewers), named "rank 3, host a"
///   slice    a call: "push of key 3", with its bytes; inside it, one after the other, what it did
///   async    an asynchronous call of one key, from the program's call to its completion; and from
///            the first such call until none was left, with a counter of the share that was hidden
std::string trace_events(collectives::Engine& engine, std::int64_t origin_ns);

/// A trace without events, in place of what is there, as base/output.hpp has it. Errors: io.
void create_trace(const std::string& path, std::uint64_t job);

/// True if this is the trace of this job, as far as this host can see.
bool is_trace_of(const std::string& path, std::uint64_t job) noexcept;

/// Adds events, which have commas between them, under the file's lock. What a writer that was
/// killed has left of a line is removed. Errors: io; timeout if another process does not let go of
/// the file.
void append_trace(const std::string& path, const std::string& events,
                  std::chrono::duration<double> patience = std::chrono::seconds(60));

}  // namespace tutti::observe
