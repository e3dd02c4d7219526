// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <sstream>

#include <tutti/error.hpp>
#include <tutti/gpu.hpp>
#include <tutti/settings.hpp>

#include "apps/benchmark/backends.hpp"
#include "apps/benchmark/cases.hpp"
#include "support/command_line.hpp"
#include "support/output_file.hpp"
#include "support/plot.hpp"

namespace po = boost::program_options;

namespace apps::benchmark {
namespace {

/// The texts of options that are read further once the command line has been split.
struct RawOptions {
  std::string min_bytes, max_bytes, step_bytes, dtypes, ops, root, backends, buffers, places, times;
  std::string cache, device, ranks_per_node, compression;
  int iterations = 0;
  int check = 1;
};

void describe_sizes(po::options_description& all, Options& options, RawOptions& raw) {
  add_rows(
      all,
      {
          {"minbytes,b", po::value(&raw.min_bytes)->default_value("8"),
           "smallest size; bytes, or with suffix as in 64K, 1MiB, 2G"},
          {"maxbytes,e", po::value(&raw.max_bytes)->default_value("128M"), "largest size"},
          {"stepfactor,f", po::value(&options.step_factor)->default_value(2), "from size to size"},
          {"stepbytes,i", po::value(&raw.step_bytes),
           "from size to size, instead of a factor: bytes, or with suffix"},
          {"datatype,d", po::value(&raw.dtypes)->default_value("float32"),
           "float16, bfloat16, float32, float64, int8, uint8, int32 or int64; half, float and "
           "double "
           "are "
           "taken, too; several one after the other as in half,float, or all"},
          {"op,o", po::value(&raw.ops)->default_value("sum"),
           "sum, prod, min, max or avg; several as in sum,max, or all"},
          {"root,r", po::value(&raw.root)->default_value("0"),
           "rank whose input a broadcast or scatter spreads, or that gets a reduce or gather; all "
           "takes "
           "each in turn"},
      });
}

void describe_measurement(po::options_description& all, Options& options, RawOptions& raw) {
  add_rows(
      all,
      {
          {"iters,n", po::value(&raw.iterations),
           "timed iterations per size and backend (default 20; small sizes up to 2000, as "
           "many as fit into a quarter of a second)"},
          {"warmup_iters,w", po::value(&options.warmups)->default_value(5),
           "iterations before them, per size and backend"},
          {"agg_iters,m", po::value(&options.calls_per_iteration)->default_value(1),
           "calls per iteration, one right after the other; times are of one call: with several, "
           "of the "
           "rate at which calls go on"},
          {"check,c", po::value(&raw.check)->default_value(1),
           "1 checks every element, 0 does not"},
          {"collective", po::value(&options.collective)->default_value("allreduce"),
           "allreduce, reduce_scatter, allgather, allgatherv, broadcast, reduce, gather, scatter, "
           "alltoall, alltoallv, sendrecv (of the ranks 0 and 1, 2 and 3, ..., there and back), "
           "user_allreduce (a sum that is the program's own), barrier or pushpull"},
          {"model", po::value(&options.model),
           "for pushpull, instead of sizes: resnet50, bert-base, or a file with a shape per line, "
           "as in "
           "64x3x7x7: all tensors in one call"},
          {"compression", po::value(&raw.compression)->default_value("none"),
           "for tutti's pushpull of float32: name,option=value,... as below. What 2bit, 1bit and "
           "topk "
           "give is not checked"},
          {"backend", po::value(&raw.backends)->default_value("tutti,mpi"),
           "tutti, mpi, nccl (with --device gpu); several are measured in turn"},
          {"buffers", po::value(&raw.buffers)->default_value("store"),
           "tutti's: store (memory of the node, no copies), user (ordinary memory), or both in "
           "turn as "
           "in store,user; mpi's are ordinary memory"},
          {"place", po::value(&raw.places)->default_value("out"),
           "of allreduce and reduce: out (the result beside "
           "the input), in (over it), or both in turn as "
           "in out,in"},
          {"cache", po::value(&raw.cache)->default_value("fresh"),
           "fresh: each rank writes its inputs before every timed call, as a training step does; "
           "hot: "
           "they are written once; cold: they are written, and out of the caches, before every "
           "call"},
          {"device", po::value(&raw.device)->default_value("cpu"),
           "cpu or gpu: where the tensors are"},
          {"ranks-per-node", po::value(&raw.ranks_per_node),
           "splits each host into nodes: 4, or 3,5; for tests and experiments"},
      });
}

void describe_results(po::options_description& all, Options& options, RawOptions& raw) {
  add_rows(
      all,
      {
          {"json", po::value(&options.json), "file for the results, with the environment"},
          {"csv", po::value(&options.csv), "file for the results"},
          {"times", po::value(&raw.times)->default_value("p50,p99"),
           "columns of the table: p50, p99, avg, min, max, several between commas; files have all"},
          {"plot", po::value(&options.plot), "file for a plot (SVG): time and busbw over size"},
          {"label", po::value(&options.label), "a name for this run, which goes into the JSON"},
          {"min-busbw", po::value(&options.min_busbw)->default_value(0.0),
           "GB/s: exit code 3 if tutti's busbw at the largest size is below (in the first of "
           "--buffers)"},
          {"baseline", po::value(&options.baseline),
           "a --json of an earlier run: exit code 3 if a p50 is longer than there, beyond the "
           "tolerance"},
          {"tolerance", po::value(&options.tolerance)->default_value(10.0),
           "percent, for --baseline"},
      });
}

po::options_description describe(Options& options, RawOptions& raw) {
  po::options_description all("Options", 100);
  describe_sizes(all, options, raw);
  describe_measurement(all, options, raw);
  describe_results(all, options, raw);
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

constexpr std::array kDTypes{tutti::DType::float16, tutti::DType::bfloat16, tutti::DType::float32,
                             tutti::DType::float64, tutti::DType::int8,     tutti::DType::uint8,
                             tutti::DType::int32,   tutti::DType::int64};
constexpr std::array kOps{tutti::ReduceOp::sum, tutti::ReduceOp::prod, tutti::ReduceOp::min,
                          tutti::ReduceOp::max, tutti::ReduceOp::avg};

tutti::ReduceOp parse_op(const std::string& text) {
  for (const tutti::ReduceOp op : kOps) {
    if (text == to_string(op)) return op;
  }
  throw_usage_error("--op: expected sum, prod, min, max or avg, found '" + text + "'");
}

/// The type of a name, which may be one of the library's, or of nccl-tests'.
tutti::DType parse_type(const std::string& text) {
  if (text == "half") return tutti::DType::float16;
  if (text == "float") return tutti::DType::float32;
  if (text == "double") return tutti::DType::float64;
  return parse("--datatype", [&] { return tutti::parse_dtype(text); });
}

/// The values of a list: "all", or those that `parse_one` makes of each name between commas,
/// without repetitions.
template <class Value, class Parser>
std::vector<Value> parse_values(const std::string& option, const std::string& text,
                                std::span<const Value> all, Parser&& parse_one) {
  if (text == "all") return {all.begin(), all.end()};
  std::vector<Value> values;
  for (const std::string& name : split(text)) {
    const Value value = parse_one(name);
    require(std::ranges::find(values, value) == values.end(),
            option + ": " + to_string(value) + " is there twice");
    values.push_back(value);
  }
  require(!values.empty(), option + ": expected a name or all");
  return values;
}

std::optional<int> parse_root(const std::string& text) {
  if (text == "all") return std::nullopt;
  int root = -1;
  const char* const end = text.data() + text.size();
  const auto [read_to, error] = std::from_chars(text.data(), end, root);
  require(error == std::errc() && read_to == end && root >= 0,
          "--root: expected a rank or all, found '" + text + "'");
  return root;
}

CacheMode parse_cache(const std::string& text) {
  for (const CacheMode mode : {CacheMode::hot, CacheMode::cold, CacheMode::fresh}) {
    if (text == to_string(mode)) return mode;
  }
  throw_usage_error("--cache: expected hot, cold or fresh, found '" + text + "'");
}

/// The names between commas, each of them one of `known`, without repetitions.
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

bool has_average(tutti::DType dtype) {
  using tutti::DType;
  return dtype == DType::float16 || dtype == DType::bfloat16 || dtype == DType::float32 ||
         dtype == DType::float64;
}

/// Reads the operations. "all" are the operations that all of the dtypes have.
void read_ops(const RawOptions& raw, Options& options) {
  options.ops = parse_values<tutti::ReduceOp>("--op", raw.ops, kOps, parse_op);
  const auto whole = std::ranges::find_if_not(options.dtypes, has_average);
  const auto average = std::ranges::find(options.ops, tutti::ReduceOp::avg);
  if (whole == options.dtypes.end() || average == options.ops.end()) return;
  require(raw.ops == "all", std::string("--op: there is no avg of ") + to_string(*whole));
  options.ops.erase(average);
}

void read(const RawOptions& raw, const po::variables_map& values, Options& options) {
  options.min_bytes = parse("--minbytes", [&] { return tutti::parse_bytes(raw.min_bytes); });
  options.max_bytes = parse("--maxbytes", [&] { return tutti::parse_bytes(raw.max_bytes); });
  if (values.contains("stepbytes")) {
    require(values["stepfactor"].defaulted(), "--stepbytes and --stepfactor: name one of the two");
    options.step_bytes = parse("--stepbytes", [&] { return tutti::parse_bytes(raw.step_bytes); });
    require(options.step_bytes >= 1, "--stepbytes: expected at least 1");
  }
  options.dtypes = parse_values<tutti::DType>("--datatype", raw.dtypes, kDTypes, parse_type);
  read_ops(raw, options);
  options.dtype = options.dtypes.front();
  options.op = options.ops.front();
  options.root = parse_root(raw.root);
  if (values.contains("iters")) options.iterations = raw.iterations;
  require(raw.check == 0 || raw.check == 1, "--check: expected 0 or 1");
  options.check = raw.check == 1;
  options.backends = parse_list("--backend", raw.backends, {"tutti", "mpi", "nccl"});
  options.buffers = parse_list("--buffers", raw.buffers, {"store", "user"});
  options.places = parse_list("--place", raw.places, {"out", "in"});
  options.times = parse_list("--times", raw.times, {"p50", "p99", "avg", "min", "max"});
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

void check_numbers(const Options& options) {
  require(options.min_bytes >= 1, "--minbytes: expected at least 1");
  require(options.max_bytes >= options.min_bytes, "--maxbytes is less than --minbytes");
  require(options.step_factor >= 2, "--stepfactor: expected at least 2");
  require(options.iterations.value_or(1) >= 1, "--iters: expected at least 1");
  require(options.warmups >= 0, "--warmup_iters: expected at least 0");
  require(options.calls_per_iteration >= 1, "--agg_iters: expected at least 1");
  require(std::isfinite(options.min_busbw) && options.min_busbw >= 0.0,
          "--min-busbw: expected a number of GB/s");
  require(std::isfinite(options.tolerance) && options.tolerance >= 0.0,
          "--tolerance: expected a number of percent");
}

bool is_half(tutti::DType dtype) {
  return dtype == tutti::DType::float16 || dtype == tutti::DType::bfloat16;
}

/// Checks options that exclude each other when there are several passes, roots or places.
void check_passes(const Options& options) {
  const Case& chosen = find_case(options.collective);
  const bool in_place = std::ranges::find(options.places, "in") != options.places.end();
  require(has_root(chosen) || options.root == 0,
          "--root belongs to broadcast, reduce, gather and scatter");
  require(!in_place || options.collective == "allreduce" || options.collective == "reduce",
          "--place in belongs to allreduce and reduce");
  require(!in_place || !options.on_gpu, "--place in belongs to --device cpu");
  require(!in_place || options.cache != CacheMode::hot,
          "--place in and --cache hot: the second call would reduce the result of the first");
  require(!in_place || options.calls_per_iteration == 1,
          "--place in and --agg_iters: the second call would reduce the result of the first");
  require(options.calls_per_iteration == 1 || options.cache != CacheMode::cold,
          "--agg_iters and --cache cold: each call has buffers of its own there");
  require(options.has_one_pass() || (options.plot.empty() && options.min_busbw == 0.0),
          "--plot and --min-busbw are about one type, operation and root");
  require(!options.has_both_places() || options.plot.empty(), "--plot is about one --place");
}

void check_combination(const Options& options) {
  const Case& chosen = find_case(options.collective);
  const bool half = std::ranges::all_of(options.dtypes, is_half);
  const bool only_sums = options.ops == std::vector{tutti::ReduceOp::sum};
  const bool sums =
      (options.collective == "pushpull" || options.collective == "allreduce") && only_sums;
  require(!options.on_gpu || sums,
          "--device gpu: on GPUs there are pushpull and allreduce, of sums");
  require(options.on_gpu || !options.has_backend("nccl"), "--backend nccl belongs to --device gpu");
  if (options.has_backend("nccl")) require_nccl();
  require(options.buffers.size() == 1 ||
              (options.has_backend("tutti") && !options.on_gpu && chosen.has_sizes),
          "--buffers: both belong to tutti's tensors on the CPU");
  require(options.model.empty() || options.collective == "pushpull",
          "--model belongs to --collective pushpull");
  require(options.collective != "pushpull" || only_sums,
          "--op: a push sums, whatever else there is");
  require(options.collective != "user_allreduce" || only_sums, "--op: user_allreduce is a sum");
  require(!options.compresses() || (options.collective == "pushpull" &&
                                    options.dtypes == std::vector{tutti::DType::float32}),
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
  for (const std::string& place : places) {
    const bool in_place = place == "in";
    for (const std::string& backend : backends) {
      if (on_gpu) {
        all.push_back({backend, "gpu", in_place});
      } else if (backend != "tutti") {
        all.push_back({backend, "user", in_place});
      } else {
        for (const std::string& kind : buffers) all.push_back({backend, kind, in_place});
      }
    }
  }
  return all;
}

bool Options::has_one_pass() const {
  return dtypes.size() == 1 && root && (ops.size() == 1 || !find_case(collective).reduces);
}

std::vector<Options> passes(const Options& options, int ranks) {
  const Case& chosen = find_case(options.collective);
  if (options.root && *options.root >= ranks) {
    throw_usage_error("--root: expected 0 to " + std::to_string(ranks - 1) +
                      ", the ranks of this "
                      "job, found " +
                      std::to_string(*options.root));
  }
  std::vector<Options> all;
  for (const tutti::DType dtype : options.dtypes) {
    for (const tutti::ReduceOp op : options.ops) {
      if (!chosen.reduces && op != options.ops.front()) continue;
      for (int root = options.root.value_or(0); root < (options.root ? *options.root + 1 : ranks);
           ++root) {
        Options& pass = all.emplace_back(options);
        pass.dtype = dtype;
        pass.op = op;
        pass.root = root;
      }
    }
  }
  return all;
}

std::string dtypes_text(const Options& options) {
  std::string text;
  for (const tutti::DType dtype : options.dtypes) {
    text += std::string(text.empty() ? "" : ",") + to_string(dtype);
  }
  return text;
}

std::string ops_text(const Options& options) {
  std::string text;
  for (const tutti::ReduceOp op : options.ops) {
    text += std::string(text.empty() ? "" : ",") + to_string(op);
  }
  return text;
}

std::string root_text(const Options& options) {
  return options.root ? std::to_string(*options.root) : "all";
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
  check_passes(options);
  // The pattern's small integers are exact in 16 bits, and in no shorter format.
  if (loses_values(options.compression)) options.check = false;
  return options;
}

void check_output_files(const Options& options) {
  for (const auto& path : {options.json, options.csv}) check_output_file(path);
  check_plot(options.plot);
}

std::vector<std::size_t> sizes(const Options& options) {
  std::vector<std::size_t> all;
  for (std::size_t size = options.min_bytes; size <= options.max_bytes;) {
    all.push_back(size);
    if (options.step_bytes > 0) {
      if (options.max_bytes - size < options.step_bytes) break;  // the next size might overflow
      size += options.step_bytes;
    } else {
      if (size > options.max_bytes / options.step_factor) break;
      size *= options.step_factor;
    }
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
