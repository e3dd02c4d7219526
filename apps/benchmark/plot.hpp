// SPDX-License-Identifier: Apache-2.0
// A plot of the results, as a picture that every browser shows.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/benchmark/machine.hpp"
#include "apps/benchmark/options.hpp"
#include "apps/benchmark/result.hpp"

namespace apps::benchmark {

// --- logarithmic axes: their range and their ticks ---------------------------------------------

struct Tick {
  double value = 0.0;
  std::string label;  ///< empty: a grid line alone
  bool major = false;
};

struct Axis {
  double low = 1.0;
  double high = 10.0;
  std::vector<Tick> ticks;

  /// From 0 at `low` to 1 at `high`.
  [[nodiscard]] double position(double value) const;
};

/// Powers of two, labelled "8 B", "1 KiB", "1 MiB", so many that the labels have room.
/// `values` has a positive one.
Axis byte_axis(std::span<const double> values);

/// Decades with a grid line at 2 and 5 between them, which are labelled too on a short axis. The
/// range ends at the next 1, 2 or 5 times a power of ten.
using Label = std::string (*)(double value);
Axis decade_axis(std::span<const double> values, Label label);

/// "0.1 µs", "10 µs", "1 ms", "10 s"; the argument is in microseconds.
std::string microseconds_label(double value);
/// "0.01", "10".
std::string plain_label(double value);

/// Two panels, p50 and bus bandwidth: curves over the sizes, on logarithmic axes, or bars if there
/// is one size. Bandwidths have the memory's limit beside them, as a busbw. SVG 1.1.
std::string to_svg(std::span<const Row> rows, const Options& options, const Machine& machine,
                   const std::optional<MemorySpeed>& memory);

}  // namespace apps::benchmark
