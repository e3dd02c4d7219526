// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/options.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include <tutti/error.hpp>
#include <tutti/gpu.hpp>
#include <tutti/settings.hpp>

#include "apps/benchmark/backends.hpp"
#include "apps/benchmark/cases.hpp"
#include "support/command_line.hpp"

namespace po = boost::program_options;

namespace apps::benchmark {
namespace {

/// Options whose raw are read further once the command line is taken apart.
struct RawOptions {
  std::string min_bytes, max_bytes, dtype, op, backends, buffers, cache, device, ranks_per_node;
  std::string compression;
  int iterations = 0;
  int check = 1;
};

void describe_measurement(po::options_description& all, Options& options, RawOptions& raw) {
  all.add_options()("minbytes,b", po::value(&raw.min_bytes)->default_value("8"),
                    "smallest size; bytes, or with suffix as in 64K, 1MiB, 2G")(
      "maxbytes,e", po::value(&raw.max_bytes)->default_value("128M"), "largest size")(
      "stepfactor,f", po::value(&options.step_factor)->default_value(2), "from size to size")(
      "datatype,d", po::value(&raw.dtype)->default_value("float32"),
      "float16, bfloat16, float32, float64, int8, uint8, int32 or int64")(
      "op,o", po::value(&raw.op)->default_value("sum"), "sum, prod, min, max or avg")(
      "iters,n", po::value(&raw.iterations),
      "timed calls per size and backend (default 20; small sizes up to 2000, as many as fit into "
      "a quarter of a second)")("warmup_iters,w", po::value(&options.warmups)->default_value(5),
                                "calls before them, per size and backend")(
      "check,c", po::value(&raw.check)->default_value(1), "1 checks every element, 0 does not")(
      "collective", po::value(&options.collective)->default_value("allreduce"),
      "allreduce, reduce_scatter, allgather, allgatherv, broadcast, reduce, gather, scatter, "
      "alltoall, alltoallv, sendrecv (of the ranks 0 and 1, 2 and 3, ..., there and back), "
      "user_allreduce (a sum that is the program's own), barrier or pushpull")(
      "model", po::value(&options.model),
      "for pushpull, instead of sizes: resnet50, bert-base, or a file with a shape per line, as in "
      "64x3x7x7: all tensors in one call")(
      "compression", po::value(&raw.compression)->default_value("none"),
      "for tutti's pushpull of float32: name,option=value,... as below. What 2bit, 1bit and topk "
      "give is not checked")("backend", po::value(&raw.backends)->default_value("tutti,mpi"),
                             "tutti, mpi, nccl (with --device gpu); several are measured in turn")(
      "buffers", po::value(&raw.buffers)->default_value("store"),
      "tutti's: store (memory of the node, no copies), user (ordinary memory), or both in turn as "
      "in store,user; mpi's are ordinary memory")(
      "cache", po::value(&raw.cache)->default_value("fresh"),
      "fresh: each rank writes its inputs before every timed call, as a training step does; hot: "
      "they are written once; cold: they are written, and out of the caches, before every call")(
      "device", po::value(&raw.device)->default_value("cpu"), "cpu or gpu: where the tensors are")(
      "ranks-per-node", po::value(&raw.ranks_per_node),
      "splits each host into nodes: 4, or 3,5; for tests and experiments");
}

void describe_results(po::options_description& all, Options& options) {
  all.add_options()("json", po::value(&options.json), "file for the results, with the environment")(
      "csv", po::value(&options.csv), "file for the results")(
      "plot", po::value(&options.plot), "file for a plot (SVG): time and busbw over size")(
      "label", po::value(&options.label), "a name for this run, which goes into the JSON")(
      "min-busbw", po::value(&options.min_busbw)->default_value(0.0),
      "GB/s: exit code 3 if tutti's busbw at the largest size is below (in the first of "
      "--buffers)")(
      "baseline", po::value(&options.baseline),
      "a --json of an earlier run: exit code 3 if a p50 is longer than there, beyond the "
      "tolerance")("tolerance", po::value(&options.tolerance)->default_value(10.0),
                   "percent, for --baseline");
}

po::options_description describe(Options& options, RawOptions& raw) {
  po::options_description all("Options", 100);
  describe_measurement(all, options, raw);
  describe_results(all, options);
  add_common_options(all);
  return all;
}

void require(bool holds, const std::string& text) {
  if (!holds) throw_usage_error(text);
}

/// Runs a parser of the library; its error names the option too.
template <class Parser>
auto parse(const std::string& option, Parser&& parser) {
  try {
    return parser();
  } catch (const tutti::Error& error) {
    throw_usage_error(option + ": " + error.what());
  }
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

tutti::ReduceOp parse_op(const std::string& text) {
  using tutti::ReduceOp;
  for (const ReduceOp op :
       {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg}) {
    if (text == to_string(op)) return op;
  }
  throw_usage_error("--op: expected sum, prod, min, max or avg, found '" + text + "'");
}

CacheMode parse_cache(const std::string& text) {
  for (const CacheMode mode : {CacheMode::hot, CacheMode::cold, CacheMode::fresh}) {
    if (text == to_string(mode)) return mode;
  }
  throw_usage_error("--cache: expected hot, cold or fresh, found '" + text + "'");
}

/// Names between commas, each of them one of `known` and there once.
std::vector<std::string> parse_list(const std::string& option, const std::string& text,
                                    const std::vector<std::string>& known) {
  std::string expected = option + ": expected " + known[0];
  for (std::size_t i = 1; i < known.size(); ++i) {
    expected += (i + 1 < known.size() ? ", " : " or ") + known[i];
  }
  expected += ", or several as in " + known[0] + "," + known[1];
  std::vector<std::string> names;
  for (const std::string& name : split(text)) {
    require(std::ranges::find(known, name) != known.end(), expected + "; found '" + text + "'");
    require(std::ranges::find(names, name) == names.end(),
            option + ": " + name + " is there twice");
    names.push_back(name);
  }
  require(!names.empty(), expected);
  return names;
}

std::vector<int> parse_ranks_per_node(const std::string& text) {
  std::vector<std::string> warnings;
  return parse("--ranks-per-node", [&] {
    return tutti::Settings::from_variables({{"TUTTI_RANKS_PER_NODE", text}}, warnings)
        .ranks_per_node;
  });
}

void read(const RawOptions& raw, const po::variables_map& values, Options& options) {
  options.min_bytes = parse("--minbytes", [&] { return tutti::parse_bytes(raw.min_bytes); });
  options.max_bytes = parse("--maxbytes", [&] { return tutti::parse_bytes(raw.max_bytes); });
  options.dtype = parse("--datatype", [&] { return tutti::parse_dtype(raw.dtype); });
  options.op = parse_op(raw.op);
  if (values.contains("iters")) options.iterations = raw.iterations;
  require(raw.check == 0 || raw.check == 1, "--check: expected 0 or 1");
  options.check = raw.check == 1;
  options.backends = parse_list("--backend", raw.backends, {"tutti", "mpi", "nccl"});
  options.buffers = parse_list("--buffers", raw.buffers, {"store", "user"});
  options.cache = parse_cache(raw.cache);
  options.compression =
      parse("--compression", [&] { return tutti::compression::create(raw.compression); });
  require(raw.device == "cpu" || raw.device == "gpu",
          "--device: expected cpu or gpu, found '" + raw.device + "'");
  options.on_gpu = raw.device == "gpu";
  require(!options.on_gpu || tutti::num_gpus() > 0, "--device gpu: " + tutti::describe_gpus());
  if (values.contains("ranks-per-node")) {
    options.ranks_per_node = parse_ranks_per_node(raw.ranks_per_node);
  }
}

bool loses_values(const tutti::Compression& compression) {
  using namespace tutti::compression;
  return std::holds_alternative<TwoBit>(compression) ||
         std::holds_alternative<OneBit>(compression) || std::holds_alternative<TopK>(compression);
}

bool has_average(tutti::DType dtype) {
  using tutti::DType;
  return dtype == DType::float16 || dtype == DType::bfloat16 || dtype == DType::float32 ||
         dtype == DType::float64;
}

void check_numbers(const Options& options) {
  require(options.min_bytes >= 1, "--minbytes: expected at least 1");
  require(options.max_bytes >= options.min_bytes, "--maxbytes is less than --minbytes");
  require(options.step_factor >= 2, "--stepfactor: expected at least 2");
  require(options.iterations.value_or(1) >= 1, "--iters: expected at least 1");
  require(options.warmups >= 0, "--warmup_iters: expected at least 0");
  require(std::isfinite(options.min_busbw) && options.min_busbw >= 0.0,
          "--min-busbw: expected a number of GB/s");
  require(std::isfinite(options.tolerance) && options.tolerance >= 0.0,
          "--tolerance: expected a number of percent");
}

void check_combination(const Options& options) {
  const Case& chosen = find_case(options.collective);
  const bool half =
      options.dtype == tutti::DType::float16 || options.dtype == tutti::DType::bfloat16;
  const bool sums = (options.collective == "pushpull" || options.collective == "allreduce") &&
                    options.op == tutti::ReduceOp::sum;
  require(!options.on_gpu || (sums && !options.compresses()),
          "--device gpu: on GPUs there are pushpull and allreduce, of sums, uncompressed");
  require(options.on_gpu || !options.has_backend("nccl"), "--backend nccl belongs to --device gpu");
  if (options.has_backend("nccl")) require_nccl();
  require(options.buffers.size() == 1 ||
              (options.has_backend("tutti") && !options.on_gpu && chosen.has_sizes),
          "--buffers: both belong to tutti's tensors on the CPU");
  require(options.model.empty() || options.collective == "pushpull",
          "--model belongs to --collective pushpull");
  require(options.collective != "pushpull" || options.op == tutti::ReduceOp::sum,
          "--op: a push sums, whatever else there is");
  require(options.collective != "user_allreduce" || options.op == tutti::ReduceOp::sum,
          "--op: user_allreduce is a sum");
  require(options.op != tutti::ReduceOp::avg || has_average(options.dtype),
          std::string("--op: there is no avg of ") + to_string(options.dtype));
  require(!options.compresses() ||
              (options.collective == "pushpull" && options.dtype == tutti::DType::float32),
          "--compression belongs to --collective pushpull of float32");
  require(options.min_busbw == 0.0 || options.has_backend("tutti"),
          "--min-busbw is about tutti, which --backend leaves out");
  require(!chosen.reduces || !half || options.has_backend("tutti"),
          std::string("--datatype: MPI cannot reduce ") + to_string(options.dtype));
  require(chosen.has_sizes || (options.plot.empty() && options.min_busbw == 0.0),
          "--plot and --min-busbw need sizes, and barrier has none");
}

}  // namespace

const char* to_string(CacheMode mode) {
  switch (mode) {
    case CacheMode::hot:
      return "hot";
    case CacheMode::cold:
      return "cold";
    case CacheMode::fresh:
      return "fresh";
  }
  return "unknown";
}

bool Options::has_backend(const std::string& name) const {
  return std::ranges::find(backends, name) != backends.end();
}

std::vector<Contender> Options::contenders() const {
  std::vector<Contender> all;
  for (const std::string& backend : backends) {
    if (on_gpu) {
      all.push_back({backend, "gpu"});
    } else if (backend != "tutti") {
      all.push_back({backend, "user"});
    } else {
      for (const std::string& kind : buffers) all.push_back({backend, kind});
    }
  }
  return all;
}

Options parse_options(int argc, const char* const* argv) {
  Options options;
  RawOptions raw;
  const auto values = parse_command_line(argc, argv, describe(options, raw));
  options.help = values.contains("help");
  options.version = values.contains("version");
  if (options.help || options.version) return options;
  read(raw, values, options);
  check_numbers(options);
  check_combination(options);
  // The pattern's small integers are exact in 16 bits, and in nothing shorter.
  if (loses_values(options.compression)) options.check = false;
  return options;
}

void check_output_files(const Options& options) {
  for (const auto& path : {options.json, options.csv, options.plot}) {
    if (path.empty() || std::ofstream(path, std::ios::app)) continue;
    throw_usage_error(path.string() + ": cannot be written: " + std::strerror(errno));
  }
}

std::vector<std::size_t> sizes(const Options& options) {
  std::vector<std::size_t> all;
  for (std::size_t size = options.min_bytes; size <= options.max_bytes;
       size *= options.step_factor) {
    all.push_back(size);
    if (size > options.max_bytes / options.step_factor) break;  // the next might overflow
  }
  return all;
}

std::string help() {
  Options options;
  RawOptions raw;
  std::ostringstream text;
  text
      << "collective-benchmark: times collectives of Tutti and of MPI side by side.\n"
         "Start it alone or with mpirun. Exit code 3: a wrong result, or slower than asked for.\n\n"
      << describe(options, raw) << '\n'
      << tutti::compression::help() << "\nEnvironment:\n"
      << tutti::Settings::help();
  return text.str();
}

}  // namespace apps::benchmark
