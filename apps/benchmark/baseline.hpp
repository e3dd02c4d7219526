// SPDX-License-Identifier: Apache-2.0
// The baseline: an earlier run to compare with.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/benchmark/machine.hpp"
#include "apps/benchmark/options.hpp"
#include "apps/benchmark/result.hpp"

namespace apps::benchmark {

/// The p50 of an earlier run, with all that must be equal for a comparison.
struct BaselineEntry {
  std::string collective;
  std::string backend;
  std::string buffers;
  bool in_place = false;
  std::size_t bytes = 0;
  std::string type;
  std::string redop;
  int root = 0;
  double p50_us = 0.0;
};

/// Reads the text of a --json file.
/// Errors  invalid_argument: no such JSON, or a run of another number of ranks or nodes, with
///         another --cache or of another --model.
std::vector<BaselineEntry> parse_baseline(const std::string& text, const Options& options,
                                          const Machine& machine);
/// Reads the baseline's file; its name, `options.baseline`, is in the text of every error.
std::vector<BaselineEntry> load_baseline(const Options& options, const Machine& machine);

/// A line per result whose p50 is longer than in the baseline by more than `tolerance` percent.
struct Comparison {
  std::size_t compared = 0;  ///< results that the baseline has too
  std::vector<std::string> slower;
};
Comparison compare(std::span<const Row> rows, std::span<const BaselineEntry> baseline,
                   double tolerance);

}  // namespace apps::benchmark
