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
  tutti::DType dtype = tutti::DType::float32;
  tutti::ReduceOp op = tutti::ReduceOp::sum;
  std::optional<int> iterations;  ///< unset: as many as the time allows
  int warmups = 0;
  bool check = true;
  std::string collective;
  std::vector<std::string> backends;  ///< "tutti", "mpi", "nccl"; each once
  std::vector<std::string> buffers;   ///< tutti's: "store", "user"; each once
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
  /// What is measured in turn: each backend, Tutti once for each kind of buffers.
  [[nodiscard]] std::vector<Contender> contenders() const;
  [[nodiscard]] bool compresses() const { return compression.index() != 0; }
};

/// Errors  invalid_argument: an unknown option, a value that cannot be used, or a combination that
///         makes no sense. Files are not looked at.
Options parse_options(int argc, const char* const* argv);

/// Errors  invalid_argument: an output file that cannot be written. Creates those that are missing;
/// leaves the content of others alone.
void check_output_files(const Options& options);

/// The sizes from the smallest to the largest, by the factor; the last is at most the largest.
std::vector<std::size_t> sizes(const Options& options);

/// The text of --help.
std::string help();

}  // namespace apps::benchmark
