// SPDX-License-Identifier: Apache-2.0
// A plot of the results of one run.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "apps/benchmark/machine.hpp"
#include "apps/benchmark/options.hpp"
#include "apps/benchmark/result.hpp"

namespace apps::benchmark {

/// Two panels, p50 and bus bandwidth. Bandwidths have the memory's limit beside them, as a busbw.
std::string to_svg(std::span<const Row> rows, const Options& options, const Machine& machine,
                   const std::optional<MemorySpeed>& memory);

}  // namespace apps::benchmark
