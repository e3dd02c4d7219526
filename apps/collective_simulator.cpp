// SPDX-License-Identifier: Apache-2.0
// Simulates the time of the library's allreduce, and of those of the textbook, on clusters that do
// not exist here.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <tutti/tutti.hpp>

#include "apps/simulator/measure.hpp"
#include "apps/simulator/measured_file.hpp"
#include "apps/simulator/textbook.hpp"
#include "support/command_line.hpp"
#include "support/output_file.hpp"
#include "support/plot.hpp"
#include "support/progress.hpp"
#include "support/text.hpp"

namespace {

namespace po = boost::program_options;
using namespace apps::simulator;
using apps::column;
using apps::format;

constexpr int kDone = 0;
constexpr int kWrong = 3;

struct Options {
  std::string nodes = "2-64";
  int ranks_per_node = 1;
  std::string sizes = "8,64K,16M";
  std::string algorithms = "tutti";
  std::string collective = "allreduce";
  std::string compression = "none";
  std::string buffers = "user";
  std::string calls = "together";
  std::string overrides;
  bool critical_path = false;
  std::string tuning = "learn";
  std::string network;
  std::string measured;
  std::string json;
  std::string plot;
};

po::options_description describe(Options& options) {
  po::options_description all("Options", 100);
  apps::add_rows(
      all,
      {
          {"nodes", po::value(&options.nodes)->default_value("2-64"),
           "numbers with commas between; A-B: A, doubled up to B"},
          {"ranks-per-node", po::value(&options.ranks_per_node)->default_value(1), "of every node"},
          {"size", po::value(&options.sizes)->default_value("8,64K,16M"),
           "bytes of a rank (float32), with suffix as in 64K, 1GiB; several with commas between"},
          {"algorithms", po::value(&options.algorithms)->default_value("tutti"),
           "with commas between: tutti, recursive-doubling, rabenseifner, ring, two-level; or all"},
          {"collective", po::value(&options.collective)->default_value("allreduce"),
           "allreduce, or pushpull (the library's alone)"},
          {"compression", po::value(&options.compression)->default_value("none"),
           "of a pushpull, as collective-benchmark takes it: 2bit, fp16, ..."},
          {"buffers", po::value(&options.buffers)->default_value("user"),
           "the library's: user (ordinary memory) or store (memory of the node, no copies)"},
          {"override", po::value(&options.overrides),
           "the library's choices, as TUTTI_ALGORITHMS has them: exchange=halving, ..."},
          {"begin", po::value(&options.calls)->default_value("together"),
           "together: all ranks begin the call that counts at one time, when nothing is under way; "
           "barrier: calls follow one another, each after barriers, as in collective-benchmark"},
          {"tuning", po::value(&options.tuning)->default_value("learn"),
           "learn: the library finds its way in up to 100 calls before the one that counts; "
           "static: it "
           "does not, which takes less time here"},
          {"network", po::value(&options.network),
           "file with the numbers of the network; required"},
          {"measured", po::value(&options.measured),
           "--json of collective-benchmark, several with commas between: its allreduces and "
           "pushpulls "
           "are simulated, and stand beside its times"},
          {"critical-path", po::bool_switch(&options.critical_path),
           "a line more for each: what the slowest rank waited for, in us"},
          {"json", po::value(&options.json), "file for the results"},
          {"plot", po::value(&options.plot),
           "file for a picture (SVG): time over nodes, for each size"},
      });
  apps::add_common_options(all);
  return all;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

int count_of(const std::string& text) {
  std::size_t end = 0;
  int count = 0;
  try {
    count = std::stoi(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  if (end == 0 || end != text.size() || count < 1 || count > kMostRanks) {
    apps::throw_usage_error("--nodes: got \"" + text + "\"; expected: 1 to " +
                            std::to_string(kMostRanks));
  }
  return count;
}

std::vector<int> nodes_of(const std::string& text) {
  std::vector<int> nodes;
  for (const std::string& part : split(text)) {
    const std::size_t dash = part.find('-', 1);
    const int first = count_of(part.substr(0, dash));
    const int last = dash == std::string::npos ? first : count_of(part.substr(dash + 1));
    if (last < first) apps::throw_usage_error("--nodes: \"" + part + "\" ends before it begins");
    for (int one = first; one <= last; one *= 2) nodes.push_back(one);
  }
  if (nodes.empty()) apps::throw_usage_error("--nodes: got nothing; expected: as in 2-64");
  return nodes;
}

std::vector<std::size_t> sizes_of(const std::string& text) {
  std::vector<std::size_t> sizes;
  for (const std::string& part : split(text)) {
    std::size_t bytes = 0;
    try {
      bytes = tutti::parse_bytes(part);
    } catch (const tutti::Error& error) {
      apps::throw_usage_error(std::string("--size: ") + error.what());
    }
    if (bytes % sizeof(float) != 0) {
      apps::throw_usage_error("--size: " + part + " is no whole number of float32");
    }
    sizes.push_back(bytes);
  }
  if (sizes.empty()) apps::throw_usage_error("--size: got nothing; expected: as in 8,64K,16M");
  return sizes;
}

std::vector<std::string> algorithms_of(const std::string& text) {
  std::vector<std::string> known{"tutti"};
  for (const Textbook& one : textbook_algorithms()) known.emplace_back(one.name);
  if (text == "all") return known;
  std::vector<std::string> chosen = split(text);
  if (chosen.empty()) chosen.emplace_back();
  for (const std::string& name : chosen) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string all;
    for (const std::string& one : known) all += one + ", ";
    apps::throw_usage_error("--algorithms: got \"" + name + "\"; expected: " + all + "or all");
  }
  return chosen;
}

/// A case that is to be simulated, with the time that was measured for it, if any.
struct SimulatedCase {
  SimulatedCall what;
  std::optional<double> measured_seconds{};
};

std::vector<SimulatedCase> measured_cases(const std::string& files, const SimulatedCall& pattern) {
  std::vector<SimulatedCase> all;
  for (const std::string& file : split(files)) {
    for (const Timed& timed : read_measured(file, pattern.learns)) {
      all.push_back({timed.what, timed.seconds});
      all.back().what.overrides = pattern.overrides;
    }
  }
  return all;
}

void require_one_of(const char* option, const std::string& value, const char* one,
                    const char* other) {
  if (value == one || value == other) return;
  apps::throw_usage_error(std::string(option) + ": got \"" + value + "\"; expected: " + one +
                          " or " + other);
}

/// The parts of a call that are the same in all cases.
SimulatedCall pattern_of(const Options& options) {
  if (options.ranks_per_node < 1) {
    apps::throw_usage_error("--ranks-per-node: got " + std::to_string(options.ranks_per_node) +
                            "; expected: at least 1");
  }
  require_one_of("--tuning", options.tuning, "learn", "static");
  require_one_of("--collective", options.collective, "allreduce", "pushpull");
  require_one_of("--buffers", options.buffers, "user", "store");
  require_one_of("--begin", options.calls, "together", "barrier");
  bool compresses = false;
  try {
    compresses = tutti::compression::create(options.compression).index() != 0;
  } catch (const tutti::Error& error) {
    apps::throw_usage_error(std::string("--compression: ") + error.what());
  }
  if (compresses && options.collective != "pushpull") {
    apps::throw_usage_error("--compression belongs to --collective pushpull");
  }
  SimulatedCall pattern;
  pattern.ranks_per_node = options.ranks_per_node;
  pattern.learns = options.tuning == "learn";
  pattern.collective = options.collective;
  pattern.compression = options.compression;
  pattern.buffers = options.buffers;
  pattern.overrides = options.overrides;
  pattern.begin = options.calls == "barrier" ? Begin::after_barrier : Begin::together;
  return pattern;
}

std::vector<SimulatedCase> cases_of(const Options& options) {
  SimulatedCall one = pattern_of(options);
  if (!options.measured.empty()) {
    if (!options.plot.empty()) {
      apps::throw_usage_error("--plot draws one call over nodes; leave it out with --measured");
    }
    return measured_cases(options.measured, one);
  }
  const std::vector<std::string> algorithms = algorithms_of(options.algorithms);
  const bool is_plain = one.collective == "allreduce" && one.buffers == "user";
  if (!is_plain && algorithms != std::vector<std::string>{"tutti"}) {
    apps::throw_usage_error(
        "--algorithms: the textbook has an allreduce of ordinary memory; leave it out with "
        "--collective pushpull and --buffers store");
  }
  std::vector<SimulatedCase> cases;
  for (const std::size_t bytes : sizes_of(options.sizes)) {
    for (const int nodes : nodes_of(options.nodes)) {
      one.bytes = bytes;
      one.nodes = nodes;
      for (const std::string& algorithm : algorithms) {
        one.algorithm = algorithm;
        cases.push_back({one});
      }
      if (nodes > kMostRanks / options.ranks_per_node) {
        apps::throw_usage_error("--nodes and --ranks-per-node: " + std::to_string(nodes) +
                                " nodes of " + std::to_string(options.ranks_per_node) +
                                "; expected: at most " + std::to_string(kMostRanks) + " ranks");
      }
    }
  }
  return cases;
}

/// The heading of the lines of times. Measured cases may be of several collectives and of several
/// numbers of ranks, which each line then names.
std::string heading(const Options& options, const std::string& network) {
  const bool is_measured = !options.measured.empty();
  const bool has_median = is_measured || options.calls == "barrier";
  return "Simulated: " + (is_measured ? "what was measured" : options.collective) +
         " of float32 on " + network +
         (is_measured ? "" : ", " + std::to_string(options.ranks_per_node) + " ranks per node") +
         "; the slowest rank" + (has_median ? ", median of the calls\n" : " of the last call\n");
}

/// The ranks per node of all cases; null where they differ.
nlohmann::json ranks_per_node_of(const std::vector<SimulatedCase>& cases) {
  const int first = cases.front().what.ranks_per_node;
  const auto has_first = [&](const SimulatedCase& one) { return one.what.ranks_per_node == first; };
  return std::all_of(cases.begin(), cases.end(), has_first) ? nlohmann::json(first)
                                                            : nlohmann::json();
}

/// The busbw: GB per second that a link would need to carry. Source: nccl-tests,
/// doc/PERFORMANCE.md.
double busbw_gbs(const Measured& one) {
  const double ranks = one.what.ranks();
  const double gigabytes = static_cast<double>(one.what.bytes) / 1e9;
  return one.seconds > 0 ? gigabytes / one.seconds * 2 * (ranks - 1) / ranks : 0;
}

std::string head(bool has_measured) {
  return std::string("      size  nodes  ranks  algorithm              time us  busbw GB/s  ") +
         "messages/node    bytes/node    bytes/link  memory/rank  wrong" +
         (has_measured ? "  measured us  simulated/measured" : "") + "\n";
}

std::string line(const Measured& one, const std::optional<double>& measured_seconds) {
  std::string name = one.what.algorithm;
  if (one.what.collective != "allreduce") name += " " + one.what.collective;
  if (one.what.compression != "none") name += " " + one.what.compression;
  name.resize(20, ' ');
  return column(apps::bytes_text(static_cast<double>(one.what.bytes)), 10) +
         format("%7d%7d  ", one.what.nodes, one.what.ranks()) + name +
         column(apps::time_text(one.seconds * kMicroseconds), 10) +
         column(apps::rate_text(busbw_gbs(one)), 12) +
         format("%15llu", static_cast<unsigned long long>(one.traffic.most_of_node)) +
         column(apps::bytes_text(static_cast<double>(one.traffic.most_bytes_of_node)), 14) +
         column(apps::bytes_text(static_cast<double>(one.traffic.most_bytes_of_link)), 14) +
         column(apps::bytes_text(static_cast<double>(one.memory_per_rank)), 13) +
         column(one.wrong ? std::to_string(*one.wrong) : "-", 7) +
         (measured_seconds ? column(apps::time_text(*measured_seconds * kMicroseconds), 13) +
                                 format("%20.2f", one.seconds / *measured_seconds)
                           : "") +
         "\n";
}

nlohmann::json to_json(const CriticalPath& path) {
  nlohmann::json on = nlohmann::json::object();
  for (std::size_t i = 0; i < path.on.size(); ++i) {
    on[name_of(static_cast<tutti::simulated::Spent>(i))] = path.on[i] * kMicroseconds;
  }
  on["other"] = path.other * kMicroseconds;
  nlohmann::json hops = nlohmann::json::array();
  for (const tutti::simulated::Hop& hop : path.hops) {
    const auto picoseconds = static_cast<double>(hop.end - hop.begin);
    hops.push_back({{"on", name_of(hop.on)}, {"rank", hop.rank}, {"us", picoseconds / 1e6}});
  }
  return {{"rank", path.rank}, {"on_us", on}, {"hops", hops}};
}

nlohmann::json to_json(const Measured& one, const std::optional<double>& measured_seconds) {
  const double microseconds = one.seconds * kMicroseconds;
  nlohmann::json json{{"collective", one.what.collective},
                      {"backend", one.what.algorithm},
                      {"compression", nullptr},
                      {"buffers", one.what.buffers},
                      {"in_place", one.what.algorithm != "tutti"},
                      {"bytes", one.what.bytes},
                      {"count", one.what.bytes / sizeof(float)},
                      {"type", "float32"},
                      {"redop", "sum"},
                      {"nodes", one.what.nodes},
                      {"ranks", one.what.ranks()},
                      {"time_us", {{"p50", microseconds}}},
                      {"algbw_gbs", 0.0},
                      {"busbw_gbs", busbw_gbs(one)},
                      {"messages", one.traffic.messages},
                      {"messages_of_node", one.traffic.most_of_node},
                      {"bytes_between_nodes", one.traffic.bytes},
                      {"bytes_of_node", one.traffic.most_bytes_of_node},
                      {"bytes_of_link", one.traffic.most_bytes_of_link},
                      {"memory_per_rank", one.memory_per_rank},
                      {"critical_path", to_json(one.path)},
                      {"wrong", nullptr}};
  if (one.what.compression != "none") json["compression"] = one.what.compression;
  if (one.seconds > 0) json["algbw_gbs"] = static_cast<double>(one.what.bytes) / 1e9 / one.seconds;
  if (one.wrong) json["wrong"] = *one.wrong;
  if (measured_seconds) json["measured_us"] = *measured_seconds * kMicroseconds;
  return json;
}

int simulate(const Options& options) {
  if (options.network.empty()) {
    apps::throw_usage_error("--network: expected: a file as in apps/simulator/networks/");
  }
  const NamedNetwork network = read_network(options.network);
  const std::vector<SimulatedCase> cases = cases_of(options);
  for (const SimulatedCase& one : cases) require_memory(one.what);
  apps::check_output_file(options.json);
  apps::check_plot(options.plot);
  std::cout << heading(options, network.name) << head(!options.measured.empty());
  nlohmann::json results = nlohmann::json::array();
  std::uint64_t wrong = 0;
  apps::ProgressBar bar(isatty(STDERR_FILENO) != 0);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    bar.show(format("%zu of %zu: %d ranks", i + 1, cases.size(), cases[i].what.ranks()));
    const Measured one = measure(network, cases[i].what);
    bar.clear();
    std::cout << line(one, cases[i].measured_seconds)
              << (options.critical_path ? "          " + to_text(one.path) + "\n" : "")
              << std::flush;
    results.push_back(to_json(one, cases[i].measured_seconds));
    wrong += one.wrong.value_or(0);
  }
  const nlohmann::json whole{{"config",
                              {{"network", network.name},
                               {"ranks_per_node", ranks_per_node_of(cases)},
                               {"begin", options.measured.empty() ? options.calls : "barrier"},
                               {"override", options.overrides},
                               {"tuning", options.tuning}}},
                             {"results", results}};
  apps::write_file(options.json, whole.dump(2) + "\n");
  apps::draw_plot(options.plot, whole.dump(2) + "\n");
  if (wrong == 0) return kDone;
  std::cerr << "collective-simulator: " << wrong << " elements are wrong\n";
  return kWrong;
}

int collective_simulator(int argc, const char* const* argv) {
  Options options;
  const po::options_description all = describe(options);
  const po::variables_map values = apps::parse_command_line(argc, argv, all);
  if (values.count("help") != 0) {
    std::cout << "collective-simulator --network FILE [OPTIONS]\n\n" << all;
    return kDone;
  }
  if (values.count("version") != 0) {
    std::cout << tutti::build_info() << "\n";
    return kDone;
  }
  po::variables_map notified = values;
  po::notify(notified);
  for (const char* name : {"nodes", "ranks-per-node", "size", "algorithms", "collective",
                           "compression", "buffers", "begin"}) {
    if (values.count("measured") == 0 || values[name].defaulted()) continue;
    apps::throw_usage_error(std::string("--measured has its own cases; leave out --") + name);
  }
  return simulate(options);
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::run_program("collective-simulator",
                            [&] { return collective_simulator(argc, argv); });
}
