// SPDX-License-Identifier: Apache-2.0
// The command line of collective-benchmark.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <tutti/communicator.hpp>
#include <tutti/compression.hpp>

#include "apps/benchmark/result.hpp"

namespace apps::benchmark {

/// Where the inputs of a timed call are when it begins.
enum class CacheMode {
  hot,    ///< where the call before left them: no rank has written them since
  cold,   ///< out of the caches
  fresh,  ///< where their own rank has just written them
};
const char* to_string(CacheMode mode);

struct Options {
  std::size_t min_bytes = 0;
  std::size_t max_bytes = 0;
  std::size_t step_factor = 0;
  std::size_t step_bytes = 0;                               ///< from size to size; 0: by the factor
  std::vector<tutti::DType> dtypes{tutti::DType::float32};  ///< each once
  std::vector<tutti::ReduceOp> ops{tutti::ReduceOp::sum};   ///< each once
  std::optional<int> root = 0;                              ///< unset: each rank in turn
  /// What a pass measures: one of `dtypes` and one of `ops`. Before, the first of them.
  tutti::DType dtype = tutti::DType::float32;
  tutti::ReduceOp op = tutti::ReduceOp::sum;
  std::optional<int> iterations;  ///< unset: as many as the time allows
  int warmups = 0;
  int calls_per_iteration = 1;  ///< that are timed together; times are of one call
  bool check = true;
  std::string collective;
  std::vector<std::string> backends;  ///< "tutti", "mpi", "nccl"; each once
  std::vector<std::string> buffers;   ///< tutti's: "store", "user"; each once
  std::vector<std::string> places;    ///< "out", "in": results beside the inputs, or over them
  std::vector<std::string> times;     ///< columns: "p50", "p99", "avg", "min", "max"
  bool on_gpu = false;
  CacheMode cache = CacheMode::fresh;
  std::vector<int> ranks_per_node;
  std::string model;  ///< empty: one tensor of each size
  std::string label;  ///< of the run, for those who compare several
  tutti::Compression compression;
  std::filesystem::path json;
  std::filesystem::path csv;
  std::filesystem::path plot;
  double min_busbw = 0.0;  ///< GB/s; 0: none
  std::filesystem::path baseline;
  double tolerance = 0.0;  ///< percent
  bool help = false;
  bool version = false;

  [[nodiscard]] bool has_backend(const std::string& name) const;
  /// What is measured in turn: each backend, Tutti once for each kind of buffers, all of it out of
  /// place and in place.
  [[nodiscard]] std::vector<Contender> contenders() const;
  /// True if all rows are of one type, operation and root.
  [[nodiscard]] bool has_one_pass() const;
  [[nodiscard]] bool has_both_places() const { return places.size() > 1; }
  [[nodiscard]] bool compresses() const { return compression.index() != 0; }
};

/// Errors  invalid_argument: an unknown option, a value that cannot be used, or a combination that
///         makes no sense. Files are not looked at.
Options parse_options(int argc, const char* const* argv);

/// Errors  invalid_argument: an output file that cannot be written. Creates those that are missing;
/// leaves the content of others alone.
void check_output_files(const Options& options);

/// What is measured one after the other: a copy of the options for each type, operation and root.
/// Errors  invalid_argument: there is no such root among `ranks`.
std::vector<Options> passes(const Options& options, int ranks);

/// "float32,float16": between commas, as they are on the command line.
std::string dtypes_text(const Options& options);
std::string ops_text(const Options& options);
/// "1" or "all".
std::string root_text(const Options& options);

/// The sizes from the smallest to the largest, by the factor or the step; the last is at most the
/// largest.
std::vector<std::size_t> sizes(const Options& options);

/// The text of --help.
std::string help();

}  // namespace apps::benchmark
