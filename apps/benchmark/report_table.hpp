// SPDX-License-Identifier: Apache-2.0
// The table on standard output, in the manner of nccl-tests.
#pragma once

#include <span>
#include <string>

#include "apps/benchmark/machine.hpp"
#include "apps/benchmark/options.hpp"
#include "apps/benchmark/result.hpp"

namespace apps::benchmark {

/// What is measured, where and how; then the columns' names and units. Lines that begin with '#'.
std::string table_head(const Options& options, const Machine& machine);

/// One line.
std::string table_row(const Row& row, const Options& options);

/// The memory's speed and the verdict on the results' values.
std::string table_foot(std::span<const Row> rows, const Options& options,
                       const MemorySpeed& memory);

}  // namespace apps::benchmark
