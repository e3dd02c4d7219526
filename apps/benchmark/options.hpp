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

/// The place of a timed call's inputs when the call begins.
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
  /// The step from one size to the next; 0: sizes grow by the factor.
  std::size_t step_bytes = 0;
  std::vector<tutti::DType> dtypes{tutti::DType::float32};  ///< without repetitions
  std::vector<tutti::ReduceOp> ops{tutti::ReduceOp::sum};   ///< without repetitions
  std::optional<int> root = 0;                              ///< unset: each rank in turn
  /// The dtype and operation that a pass measures, each one of the above. Before a pass, the first
  /// ones.
  tutti::DType dtype = tutti::DType::float32;
  tutti::ReduceOp op = tutti::ReduceOp::sum;
  std::optional<int> iterations;  ///< unset: as many as the time allows
  int warmups = 0;
  int calls_per_iteration = 1;  ///< calls that are timed together; times are those of one call
  bool check = true;
  std::string collective;
  std::vector<std::string> backends;  ///< "tutti", "mpi", "nccl"; without repetitions
  std::vector<std::string> buffers;   ///< Tutti's buffers: "store", "user"; without repetitions
  std::vector<std::string> places;    ///< "out", "in": results beside the inputs, or in their place
  std::vector<std::string> times;     ///< columns: "p50", "p99", "avg", "min", "max"
  bool on_gpu = false;
  CacheMode cache = CacheMode::fresh;
  std::vector<int> ranks_per_node;
  std::string model;  ///< empty: one tensor of each size
  std::string label;  ///< name of the run, for people who compare several
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
  /// The contenders that are measured in turn: each backend, Tutti once for each kind of buffers,
  /// all of them out of place and in place.
  [[nodiscard]] std::vector<Contender> contenders() const;
  /// True if all rows are of one type, operation and root.
  [[nodiscard]] bool has_one_pass() const;
  [[nodiscard]] bool has_both_places() const { return places.size() > 1; }
  [[nodiscard]] bool compresses() const { return compression.index() != 0; }
};

/// Errors  invalid_argument: an unknown option, a value that cannot be used, or a combination that
///         makes no sense. Files are not opened.
Options parse_options(int argc, const char* const* argv);

/// Checks that all output files can be written. Creates those that are missing; leaves the content
/// of others alone.
/// Errors  invalid_argument: an output file that cannot be written.
void check_output_files(const Options& options);

/// The passes of a run, one for each type, operation and root: each is a copy of the options.
/// Errors  invalid_argument: there is no such root among `ranks`.
std::vector<Options> passes(const Options& options, int ranks);

/// Types and operations as on the command line, between commas: "float32,float16".
std::string dtypes_text(const Options& options);
std::string ops_text(const Options& options);
/// The root as text: "1", or "all".
std::string root_text(const Options& options);

/// The sizes from the smallest to the largest, by the factor or the step; the last is at most the
/// largest.
std::vector<std::size_t> sizes(const Options& options);

/// The text of --help.
std::string help();

}  // namespace apps::benchmark
