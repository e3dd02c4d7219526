// SPDX-License-Identifier: Apache-2.0
#include "tutti/settings.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <mutex>
#include <sstream>

#include "tutti/error.hpp"

#include "collectives/tuning.hpp"
#include "runtime/base/nearest_name.hpp"

extern char** environ;

namespace tutti {

namespace {

constexpr const char* kPrefix = "TUTTI_";

[[noreturn]] void throw_bad_value(const std::string& variable, const std::string& value,
                                  const std::string& expected) {
  throw Error(ErrorCode::invalid_argument, variable + "=" + value + ": expected " + expected);
}

bool parse_flag(const std::string& variable, const std::string& value) {
  if (value == "0" || value == "1") return value == "1";
  throw_bad_value(variable, value, "0 or 1");
}

std::chrono::duration<double> parse_seconds(const std::string& variable, const std::string& value) {
  std::istringstream in(value);
  double seconds = 0;
  if (in >> seconds && in.eof() && seconds > 0 && seconds <= 1e9) {
    return std::chrono::duration<double>(seconds);
  }
  throw_bad_value(variable, value, "a number of seconds above 0, such as 300 or 2.5");
}

std::chrono::duration<double> parse_timeout(const std::string& variable, const std::string& value) {
  if (value == "0") return std::chrono::duration<double>(0);
  return parse_seconds(variable, value);
}

std::size_t parse_piece(const std::string& variable, const std::string& value) {
  constexpr std::size_t kLeast = 4096;
  constexpr std::size_t kMost = std::size_t{16} << 20;
  const std::size_t bytes = parse_bytes(value);
  if (bytes >= kLeast && bytes <= kMost && bytes % 64 == 0) return bytes;
  throw_bad_value(variable, value, "4K to 16M, a multiple of 64 bytes");
}

std::vector<int> parse_node_sizes(const std::string& variable, const std::string& value) {
  std::vector<int> sizes;
  std::istringstream in(value);
  std::string word;
  while (std::getline(in, word, ',')) {
    const bool digits =
        !word.empty() && word.size() < 7 &&
        std::all_of(word.begin(), word.end(), [](char c) { return std::isdigit(c); });
    if (!digits || std::stoi(word) == 0) {
      throw_bad_value(variable, value, "numbers of ranks above 0, such as 4 or 3,5");
    }
    sizes.push_back(std::stoi(word));
  }
  return sizes;
}

std::string parse_backing(const std::string& variable, const std::string& value) {
  for (const char* known : {"auto", "memfd", "shm", "none"}) {
    if (value == known) return value;
  }
  throw_bad_value(variable, value, "auto, memfd, shm or none");
}

std::string parse_gpu_path(const std::string& variable, const std::string& value) {
  for (const char* known : {"auto", "nccl", "host"}) {
    if (value == known) return value;
  }
  throw_bad_value(variable, value, "auto, nccl or host");
}

Verify parse_verify(const std::string& variable, const std::string& value) {
  if (value == "off") return Verify::off;
  if (value == "sampled") return Verify::sampled;
  if (value == "full") return Verify::full;
  throw_bad_value(variable, value, "off, sampled or full");
}

LogLevel parse_log_level(const std::string& variable, const std::string& value) {
  if (value == "quiet") return LogLevel::quiet;
  if (value == "warning") return LogLevel::warning;
  if (value == "info") return LogLevel::info;
  if (value == "debug") return LogLevel::debug;
  throw_bad_value(variable, value, "quiet, warning, info or debug");
}

/// As the launcher tells, before MPI can be asked: so that a job warns once, not once per rank.
bool is_first_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(name)) return std::string(rank) == "0";
  }
  return true;
}

struct Variable {
  const char* name;
  const char* unit_and_default;
  const char* meaning;
  std::function<void(Settings&, const std::string& name, const std::string& value)> read;
};

const std::vector<Variable>& variables_known() {
  using S = Settings;
  using Text = const std::string&;
  static const std::vector<Variable> kVariables = {
      {"TUTTI_TIMEOUT", "seconds, default 300, 0: never",
       "how long a collective call waits for other ranks",
       [](S& s, Text name, Text value) { s.timeout = parse_timeout(name, value); }},
      {"TUTTI_GRACE", "seconds, default 30", "the same after SIGTERM, where a program saves itself",
       [](S& s, Text name, Text value) { s.grace = parse_seconds(name, value); }},
      {"TUTTI_RANKS_PER_NODE", "ranks, default: all of a host",
       "splits a host into virtual nodes: 4, or 3,5",
       [](S& s, Text name, Text value) { s.ranks_per_node = parse_node_sizes(name, value); }},
      {"TUTTI_REPRODUCIBLE", "0 or 1, default 0", "the same bits for every layout over nodes",
       [](S& s, Text name, Text value) { s.reproducible = parse_flag(name, value); }},
      {"TUTTI_CHUNK_BYTES", "bytes, default 256K", "what a node reduces at a time, out of place",
       [](S& s, Text name, Text value) { s.chunk_bytes = parse_piece(name, value); }},
      {"TUTTI_PIECE_BYTES", "bytes, default 32K", "the largest message between nodes",
       [](S& s, Text name, Text value) { s.piece_bytes = parse_piece(name, value); }},
      {"TUTTI_ALGORITHMS", "name=value,..., default: the library's choice",
       "how data moves: inline-shared, inline-private, streamed-slots, wait-group, "
       "in-flight, handshakes, exchange",
       [](S& s, Text, Text value) {
         collectives::Tuning scratch{};
         collectives::override_choices(scratch, value);
         s.algorithms = value;
       }},
      {"TUTTI_ARENA_BYTES", "bytes, default: the machine's memory",
       "the most node-shared memory that one rank may use",
       [](S& s, Text, Text value) { s.arena_bytes = parse_bytes(value); }},
      {"TUTTI_SHARED_MEMORY", "auto, memfd, shm or none, default auto",
       "what the ranks of a node share memory through",
       [](S& s, Text name, Text value) { s.shared_memory = parse_backing(name, value); }},
      {"TUTTI_GPU_PATH", "auto, nccl or host, default auto",
       "how values on GPUs are summed over the ranks of a node",
       [](S& s, Text name, Text value) { s.gpu_path = parse_gpu_path(name, value); }},
      {"TUTTI_VERIFY", "off, sampled or full, default sampled",
       "what of the replicas each push compares between ranks",
       [](S& s, Text name, Text value) { s.verify = parse_verify(name, value); }},
      {"TUTTI_LOG", "quiet, warning, info or debug, default warning",
       "what is written to standard error; debug has every collective call",
       [](S& s, Text name, Text value) { s.log = parse_log_level(name, value); }},
      {"TUTTI_STATISTICS", "1 or a file, default: none",
       "a table of what calls cost on all ranks, at the end",
       [](S& s, Text, Text value) { s.statistics = value == "0" ? "" : value; }},
      {"TUTTI_PROMETHEUS", "a file, default: none",
       "the same for Prometheus, a file for each rank, every 10 s",
       [](S& s, Text, Text value) { s.prometheus = value; }},
      {"TUTTI_TRACE", "a file, default: none", "what all ranks did when, for ui.perfetto.dev",
       [](S& s, Text, Text value) { s.trace = value; }},
  };
  return kVariables;
}

}  // namespace

Settings Settings::from_variables(const std::map<std::string, std::string>& variables,
                                  std::vector<std::string>& warnings_found) {
  Settings settings;
  std::vector<std::string> names;
  for (const Variable& known : variables_known()) {
    names.emplace_back(known.name);
    const auto found = variables.find(known.name);
    if (found != variables.end()) known.read(settings, known.name, found->second);
  }
  for (const auto& [name, value] : variables) {
    if (name.rfind(kPrefix, 0) != 0) continue;
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    warnings_found.push_back(name + " is not a setting; did you mean " + nearest_name(name, names) +
                             "?");
  }
  return settings;
}

Settings Settings::from_environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (text.rfind(kPrefix, 0) == 0 && equals != std::string::npos) {
      variables[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  std::vector<std::string> warnings;
  Settings settings = from_variables(variables, warnings);
  static std::once_flag said;  // a program may read its settings for every store that it makes
  std::call_once(said, [&] {
    if (settings.log == LogLevel::quiet || !is_first_rank()) return;
    for (const std::string& warning : warnings) {
      std::fprintf(stderr, "tutti: warning: %s It is ignored.\n", warning.c_str());
    }
  });
  return settings;
}

std::string Settings::help() {
  std::string text = "Settings (environment variables):\n";
  for (const Variable& variable : variables_known()) {
    std::string name = std::string("  ") + variable.name;
    name.resize(std::max<std::size_t>(name.size() + 2, 26), ' ');
    text += name + variable.meaning + " (" + variable.unit_and_default + ")\n";
  }
  return text;
}

}  // namespace tutti
