// SPDX-License-Identifier: Apache-2.0
// The results as a table on standard output, in the manner of nccl-tests, and as JSON and CSV.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "apps/benchmark/machine.hpp"
#include "apps/benchmark/options.hpp"
#include "apps/benchmark/result.hpp"

namespace apps::benchmark {

/// The head of the table: what is measured, where and how; then the columns' names and units. Its
/// lines begin with '#'.
std::string table_head(const Options& options, const Machine& machine);

/// A line with the root before the rows of a pass; empty where the columns say as much.
std::string pass_head(const Options& options, const Options& pass);

/// The line of a row.
std::string table_row(const Row& row, const Options& options);

/// The foot of the table: the memory's speed, if it was measured, and the verdict on the results'
/// values.
std::string table_foot(std::span<const Row> rows, const Options& options, const Machine& machine,
                       const std::optional<MemorySpeed>& memory);

// The results as JSON, with all that comparing runs needs:
//
//   {"config": {...}, "environment": {...},
//    "results": [{"collective", "backend", "buffers", "in_place", "bytes", "count", "type",
//                 "redop", "root", "iterations", "time_us": {"p50", "avg", "min", "p99", "max"},
//                 "algbw_gbs", "busbw_gbs", "wrong"}, ...]}
//
// "wrong" is null where results were not checked, and "memory_gbs" of the environment where the
// memory was not measured. A collective that a backend does not have has no result.

std::string to_json(std::span<const Row> rows, const Options& options, const Machine& machine,
                    const std::optional<MemorySpeed>& memory);

/// The results as CSV: a line of names, then a line per result.
std::string to_csv(std::span<const Row> rows, const Options& options);

}  // namespace apps::benchmark
