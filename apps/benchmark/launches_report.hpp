// SPDX-License-Identifier: Apache-2.0
// Several launches as a table, as JSON and as a picture.
#pragma once

#include <span>
#include <string>

#include "apps/benchmark/launches.hpp"

namespace apps::benchmark {

/// A table in Markdown that reads well on a terminal, too. `notes` stand above it.
std::string to_markdown(const Merged& merged, std::span<const std::string> notes);

// JSON has every configuration's median and ratios, so that another best can be chosen:
//
//   {"conditions": {...}, "started", "notes": [...], "missing": [...],
//    "configurations": [{"name", "launches"}, ...],
//    "results": [{"bytes", "store_us", "user_us", "mpi_us": {NAME: us, ...},
//                 "mpi_ratios": {NAME: {"store", "user"}, ...},
//                 "best": NAME, "store_ratio", "user_ratio"}, ...],
//    "geometric_means": [{"sizes", "store", "user"}, ...], "wrong"}
//
// What was not measured is null; so is "wrong" where not every result was checked.
std::string to_json(const Merged& merged, std::span<const std::string> notes);

/// Two panels: times, and the ratios to the best configuration with a line at 1. SVG.
std::string to_svg(const Merged& merged);

}  // namespace apps::benchmark
