// SPDX-License-Identifier: Apache-2.0
// The trace of a job: the spans of a rank as events in Chrome's format, and the file that contains
// them.
//
// All ranks of a host write to one file, one after the other:
//
//   [                                     A JSON array of events, one per line. It is complete
//   after
//   {"ph":"M", ... "job 1f3a..."},        each rank, because the next rank overwrites the end.
//   {"ph":"X", ...},
//   {"ph":"X", ...}
//   ]
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "collectives/engine/engine.hpp"

namespace tutti::observe {

/// Returns events as JSON objects, one per line, with commas between them. Times begin at
/// `origin_ns` of CLOCK_MONOTONIC. `group` is the group's name in the program, and may be empty.
///
///   process  rank + 1 (some viewers take 0 for the idle process), named "rank 3, host a"
///   slice    a call, such as "push of key 3", with its bytes; inside it, its activities in
///   sequence async    an asynchronous call of one key, from the program's call to its completion;
///   and a step
///            of such calls, with a counter of the hidden share
std::string trace_events(collectives::Engine& engine, const std::string& group,
                         std::int64_t origin_ns);

/// Creates a trace without events, in the way of base/output.hpp. Errors: io.
void create_trace(const std::string& path, std::uint64_t job);

/// True if the file is the trace of this job, as seen from this host.
bool is_trace_of(const std::string& path, std::uint64_t job) noexcept;

/// Appends events, with commas between them, while holding the file's lock. An incomplete line,
/// left by a writer that was killed, is removed. Errors: io; timeout if another process does not
/// release the file.
void append_trace(const std::string& path, const std::string& events,
                  std::chrono::duration<double> patience = std::chrono::seconds(60));

}  // namespace tutti::observe
