// SPDX-License-Identifier: Apache-2.0
// A plot of the results, as a picture that every browser shows.
#pragma once

#include <span>
#include <string>

#include "apps/benchmark/machine.hpp"
#include "apps/benchmark/options.hpp"
#include "apps/benchmark/result.hpp"

namespace apps::benchmark {

/// Two panels, with logarithmic axes: p50 over size, and bus bandwidth over size with the memory's
/// own speed. SVG 1.1.
std::string to_svg(std::span<const Row> rows, const Options& options, const Machine& machine,
                   const MemorySpeed& memory);

}  // namespace apps::benchmark
