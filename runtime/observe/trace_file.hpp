// SPDX-License-Identifier: Apache-2.0
// A trace as a file that all ranks of a host write to, one after the other.
//
//   [                                     Chrome's JSON array of events, one to a line. It is whole
//   {"ph":"M", ... "job 1f3a..."},        after every rank: a rank overwrites the end.
//   {"ph":"X", ...},
//   {"ph":"X", ...}
//   ]
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tutti::observe {

/// A trace without events, which replaces what is there. Errors: io.
void create_trace(const std::string& path, std::uint64_t job);

/// True if this is the trace of this job, as far as this host can see.
bool is_trace_of(const std::string& path, std::uint64_t job) noexcept;

/// Adds events, which have commas between them, under the file's lock. What a writer that was
/// killed has left of a line is removed. Errors: io; timeout if another process does not let go of
/// the file.
void append_trace(const std::string& path, const std::string& events,
                  std::chrono::duration<double> patience = std::chrono::seconds(60));

}  // namespace tutti::observe
