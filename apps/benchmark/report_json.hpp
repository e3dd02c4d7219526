// SPDX-License-Identifier: Apache-2.0
// The results for other programs: JSON, with what it takes to compare runs, and CSV.
//
//   {"config": {...}, "environment": {...},
//    "results": [{"collective", "backend", "buffers", "bytes", "count", "type", "redop",
//                 "iterations", "time_us": {"p50", "min", "p99", "max"}, "algbw_gbs", "busbw_gbs",
//                 "wrong"}, ...]}
//
// "wrong" is null where results were not checked. What a backend cannot do has no result.
#pragma once

#include <span>
#include <string>

#include "apps/benchmark/machine.hpp"
#include "apps/benchmark/options.hpp"
#include "apps/benchmark/result.hpp"

namespace apps::benchmark {

std::string to_json(std::span<const Row> rows, const Options& options, const Machine& machine,
                    const MemorySpeed& memory);

/// A line of names, then a line per result.
std::string to_csv(std::span<const Row> rows);

}  // namespace apps::benchmark
