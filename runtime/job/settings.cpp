// SPDX-License-Identifier: Apache-2.0
// The list of settings, from which parsing, limits, the comparison between ranks, --help and the
// table in include/README.md are derived.
#include "runtime/job/settings.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <sstream>

#include "tutti/error.hpp"

#include "collectives/choice/overrides.hpp"
#include "collectives/text/numbers.hpp"
#include "runtime/base/nearest_name.hpp"

extern char** environ;

namespace tutti {

namespace {

constexpr const char* kPrefix = "TUTTI_";

/// The text form of each type of setting. values() describes the values for --help and errors;
/// read() returns nothing for other texts; write() returns a text that read() accepts.
namespace forms {

struct Seconds {
  using Value = std::chrono::duration<double>;
  static std::string values() { return "a number of seconds above 0, up to 1e9"; }
  static std::optional<Value> read(const std::string& text) {
    constexpr double kMost = 1e9;
    const auto seconds = number_of<double>(text);
    if (seconds && *seconds > 0 && *seconds <= kMost) return Value(*seconds);
    return std::nullopt;
  }
  static std::string write(Value value) { return exact(value.count()); }
};

struct SecondsOrNever : Seconds {
  static std::string values() { return "a number of seconds up to 1e9, 0: never"; }
  static std::optional<Value> read(const std::string& text) {
    return text == "0" ? Value(0) : Seconds::read(text);
  }
};

struct Flag {
  static std::string values() { return "0 or 1"; }
  static std::optional<bool> read(const std::string& text) {
    if (text == "0" || text == "1") return text == "1";
    return std::nullopt;
  }
  static std::string write(bool value) { return value ? "1" : "0"; }
};

struct Bytes {
  static std::string values() { return "bytes, such as 64M or 64MiB"; }
  static std::optional<std::size_t> read(const std::string& text) {
    try {
      return parse_bytes(text);
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  static std::string write(std::size_t bytes) {
    std::size_t suffix = 0;
    while (bytes > 0 && bytes % 1024 == 0 && suffix < 3) {
      bytes /= 1024;
      ++suffix;
    }
    return std::to_string(bytes) + std::array{"", "K", "M", "G"}[suffix];
  }
};

/// Sizes of chunks and pieces: whole cache lines, and large enough that a call does not mostly
/// wait.
struct PieceBytes : Bytes {
  static std::string values() { return "4K to 16M, a multiple of 64 bytes"; }
  static std::optional<std::size_t> read(const std::string& text) {
    constexpr std::size_t kLeast = 4096;
    constexpr std::size_t kMost = std::size_t{16} << 20;
    const auto bytes = Bytes::read(text);
    if (bytes && *bytes >= kLeast && *bytes <= kMost && *bytes % 64 == 0) return bytes;
    return std::nullopt;
  }
};

struct Threads {
  static constexpr int kMost = 256;
  static std::string values() { return "0 (automatic) to " + std::to_string(kMost); }
  static std::optional<int> read(const std::string& text) {
    const auto number = number_of<int>(text);
    if (number && *number >= 0 && *number <= kMost) return number;
    return std::nullopt;
  }
  static std::string write(int number) { return std::to_string(number); }
};

struct NodeSizes {
  static std::string values() { return "numbers of ranks above 0, such as 4 or 3,5"; }
  static std::optional<std::vector<int>> read(const std::string& text) {
    std::vector<int> sizes;
    std::istringstream in(text);
    std::string word;
    while (std::getline(in, word, ',')) {
      constexpr std::size_t kMostDigits = 6;
      const auto size = number_of<int>(word);
      if (!size || *size <= 0 || word.size() > kMostDigits) return std::nullopt;
      sizes.push_back(*size);
    }
    return sizes;
  }
  static std::string write(const std::vector<int>& sizes) {
    std::string text;
    for (const int size : sizes) text += (text.empty() ? "" : ",") + std::to_string(size);
    return text;
  }
};

/// The text of TUTTI_ALGORITHMS, whose errors override_choices() reports.
struct Algorithms {
  static std::string values() { return "name=value,..."; }
  static std::optional<std::string> read(const std::string& text) {
    collectives::Tuning scratch{};
    collectives::override_choices(scratch, text);
    return text;
  }
  static std::string write(const std::string& text) { return text; }
};

/// The kinds of MPI are those of runtime/mpi. A file is recognised by a slash in its name.
struct Mpi {
  static std::string values() {
    return "auto, openmpi, mpich, standard, or the path of an MPI's library";
  }
  static std::optional<std::string> read(const std::string& text) {
    const bool is_name =
        text == "auto" || text == "openmpi" || text == "mpich" || text == "standard";
    if (is_name || text.find('/') != std::string::npos) return text;
    return std::nullopt;
  }
  static std::string write(const std::string& text) { return text; }
};

struct File {
  static std::string values() { return "a file"; }
  static std::optional<std::string> read(const std::string& text) { return text; }
  static std::string write(const std::string& text) { return text; }
};

struct Folder : File {
  static std::string values() { return "a folder"; }
};

struct FileOrStandardError : File {
  static std::string values() { return "1 (to standard error) or a file"; }
  static std::optional<std::string> read(const std::string& text) {
    return text == "0" ? std::string() : text;
  }
};

struct Tuning {
  static std::string values() {
    return "learn, at-once, static, or a file of tutti-doctor --tuning";
  }
  static std::optional<std::string> read(const std::string& text) {
    if (text.empty()) return std::nullopt;
    return text;
  }
  static std::string write(const std::string& text) { return text; }
};

constexpr const char* kBackings[] = {"auto", "memfd", "shm", "none"};
constexpr const char* kLauncherChecks[] = {"check", "ignore"};
constexpr const char* kGpuPaths[] = {"auto", "nccl", "nccl-all", "host", "peers"};
constexpr const char* kVerifies[] = {"off", "sampled", "full"};
constexpr const char* kLogLevels[] = {"quiet", "warning", "info", "debug"};

/// A setting that is one of several names: as text, or as an enum whose values are in the order of
/// the names.
template <class T, const auto& kNames>
struct OneOf {
  static std::string values() {
    std::string text;
    for (std::size_t i = 0; i < std::size(kNames); ++i) {
      text += i == 0 ? "" : i + 1 == std::size(kNames) ? " or " : ", ";
      text += kNames[i];
    }
    return text;
  }
  static std::optional<T> read(const std::string& text) {
    for (std::size_t i = 0; i < std::size(kNames); ++i) {
      if (text != kNames[i]) continue;
      if constexpr (std::is_enum_v<T>) {
        return static_cast<T>(i);
      } else {
        return text;
      }
    }
    return std::nullopt;
  }
  static std::string write(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      const auto index = static_cast<std::size_t>(value);
      return index < std::size(kNames) ? kNames[index] : std::to_string(index);
    } else {
      return value;
    }
  }
};

}  // namespace forms

enum class Ranks { equal, may_differ };

struct Setting {
  const char* variable;
  const char* meaning;
  const char* of_default;  ///< meaning of an empty or 0 default; otherwise empty
  Ranks ranks;
  std::string (*values)();
  /// Returns false if the text is not a value of the setting.
  bool (*read)(Settings&, const std::string&);
  std::string (*write)(const Settings&);
};

template <auto kMember, class Form>
constexpr Setting setting(const char* variable, const char* meaning, const char* of_default = "",
                          Ranks ranks = Ranks::equal) {
  return {variable,
          meaning,
          of_default,
          ranks,
          Form::values,
          [](Settings& settings, const std::string& text) {
            auto value = Form::read(text);
            if (value) settings.*kMember = std::move(*value);
            return value.has_value();
          },
          [](const Settings& settings) { return Form::write(settings.*kMember); }};
}

constexpr std::array kSettings = {
    setting<&Settings::timeout, forms::SecondsOrNever>(
        "TUTTI_TIMEOUT", "how long a collective call waits for other ranks"),
    setting<&Settings::grace, forms::Seconds>(
        "TUTTI_GRACE", "the same after SIGTERM, where a program saves itself"),
    setting<&Settings::ranks_per_node, forms::NodeSizes>(
        "TUTTI_RANKS_PER_NODE", "splits a host into virtual nodes", "a host is a node"),
    setting<&Settings::reproducible, forms::Flag>("TUTTI_REPRODUCIBLE",
                                                  "the same bits for every layout over nodes"),
    setting<&Settings::asynchronous, forms::Flag>("TUTTI_ASYNC",
                                                  "push() returns at once; pull() waits"),
    setting<&Settings::chunk_bytes, forms::PieceBytes>(
        "TUTTI_CHUNK_BYTES", "what a node reduces at a time, out of place"),
    setting<&Settings::piece_bytes, forms::PieceBytes>(
        "TUTTI_PIECE_BYTES",
        "what a node sends to another at a time, or learns to send 2, 4 or 8 of; halving sends "
        "more"),
    setting<&Settings::algorithms, forms::Algorithms>(
        "TUTTI_ALGORITHMS",
        "how data moves: inline-shared, inline-private, streamed-slots, streamed-outputs, "
        "direct-outputs, ring, ring-chunk, own-sums, inputs, results, paths, wait-group, "
        "in-flight, pieces, "
        "chain, halved, handshakes, exchange",
        "the library's choice"),
    setting<&Settings::arena_bytes, forms::Bytes>(
        "TUTTI_ARENA_BYTES", "the most node-shared memory that one rank may use",
        "twice its share of the machine's memory"),
    setting<&Settings::shared_memory, forms::OneOf<std::string, forms::kBackings>>(
        "TUTTI_SHARED_MEMORY", "what the ranks of a node share memory through"),
    setting<&Settings::gpu_path, forms::OneOf<std::string, forms::kGpuPaths>>(
        "TUTTI_GPU_PATH", "how values on GPUs are summed over the ranks"),
    setting<&Settings::verify, forms::OneOf<Verify, forms::kVerifies>>(
        "TUTTI_VERIFY",
        "what each push compares between ranks, of the bytes of its keys: none, a 256th in turn, "
        "or all"),
    setting<&Settings::log, forms::OneOf<LogLevel, forms::kLogLevels>>(
        "TUTTI_LOG", "what is written to standard error; debug has every collective call", "",
        Ranks::may_differ),
    setting<&Settings::statistics, forms::FileOrStandardError>(
        "TUTTI_STATISTICS", "a table of what calls cost on all ranks, at the end", "none"),
    setting<&Settings::prometheus, forms::File>(
        "TUTTI_PROMETHEUS", "the same for Prometheus, a file for each rank, every 10 s", "none",
        Ranks::may_differ),
    setting<&Settings::trace, forms::File>("TUTTI_TRACE",
                                           "what all ranks did when, for ui.perfetto.dev", "none"),
    setting<&Settings::tuning, forms::Tuning>(
        "TUTTI_TUNING", "how the way of large calls, through a node or between nodes, is chosen"),
    setting<&Settings::threads, forms::Threads>("TUTTI_THREADS",
                                                "threads of a rank that work on 256 KiB and more",
                                                "usable cores / ranks of the host, at most 8"),
    setting<&Settings::launcher, forms::OneOf<std::string, forms::kLauncherChecks>>(
        "TUTTI_LAUNCHER",
        "where a launcher has started several processes and MPI knows one rank: "
        "an error, or each is alone"),
    setting<&Settings::mpi, forms::Mpi>(
        "TUTTI_MPI",
        "the MPI that the job uses; auto: the program's own, else that of the launcher, else that "
        "of the build",
        "", Ranks::may_differ),
    setting<&Settings::snapshots, forms::Folder>(
        "TUTTI_SNAPSHOTS", "where snapshots are, in memory; it outlives the ranks",
        "a folder in /dev/shm that goes with the store"),
    setting<&Settings::snapshot_every, forms::SecondsOrNever>(
        "TUTTI_SNAPSHOT_EVERY", "how often snapshot_when_due() takes one"),
};

struct AnyValue {
  template <class T>
  operator T() const;  // never called
};

/// Counts the members of an aggregate, by the number of values from which it can be initialised.
template <class T, class... Values>
constexpr std::size_t count_members() {
  if constexpr (requires { T{Values{}..., AnyValue{}}; }) {
    return count_members<T, Values..., AnyValue>();
  } else {
    return sizeof...(Values);
  }
}

static_assert(kSettings.size() == count_members<Settings>() - 1,
              "every member of Settings but environment_error needs a row in kSettings");

/// Sets a setting from a text. Returns an error, or an empty text.
std::string read(const Setting& setting, Settings& settings, const std::string& text) {
  try {
    if (setting.read(settings, text)) return {};
  } catch (const Error& error) {
    return error.what();
  }
  return std::string(setting.variable) + "=" + text + ": expected " + setting.values();
}

/// Reads all values, and returns the error of the first one that cannot be read, or an empty text.
std::string read_all(Settings& settings, const std::map<std::string, std::string>& variables,
                     std::vector<std::string>& warnings_found) {
  std::string error;
  std::vector<std::string> names;
  for (const Setting& setting : kSettings) {
    names.emplace_back(setting.variable);
    const auto found = variables.find(setting.variable);
    if (found == variables.end()) continue;
    const std::string problem = read(setting, settings, found->second);
    if (error.empty()) error = problem;
  }
  for (const auto& [name, value] : variables) {
    if (name.rfind(kPrefix, 0) != 0) continue;
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    warnings_found.push_back(name + " is not a setting; did you mean " + nearest_name(name, names) +
                             "?");
  }
  return error;
}

std::map<std::string, std::string> variables_of_process() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (text.rfind(kPrefix, 0) != 0 || equals == std::string::npos) continue;
    // A user of a program with elevated rights must not determine which code it loads, or which
    // files it writes.
    const std::string name = text.substr(0, equals);
    if (secure_getenv(name.c_str()) != nullptr) variables[name] = text.substr(equals + 1);
  }
  return variables;
}

/// True on rank 0, so that a job warns once, not once per rank. Uses the launcher's variables,
/// because MPI cannot be asked yet.
bool is_first_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(name)) return std::string(rank) == "0";
  }
  return true;
}

std::string default_of(const Setting& setting) {
  const std::string value = setting.write(Settings{});
  const std::string meaning = setting.of_default;
  if (value.empty()) return "default: " + meaning;
  return "default " + value + (meaning.empty() ? "" : ": " + meaning);
}

}  // namespace

Settings Settings::from_variables(const std::map<std::string, std::string>& variables,
                                  std::vector<std::string>& warnings_found) {
  Settings settings;
  const std::string error = read_all(settings, variables, warnings_found);
  if (!error.empty()) throw Error(ErrorCode::invalid_argument, error);
  return settings;
}

Settings Settings::from_environment() {
  Settings settings;
  std::vector<std::string> warnings;
  settings.environment_error = read_all(settings, variables_of_process(), warnings);
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
  constexpr std::size_t kNameWidth = 26;
  std::string text = "Settings (environment variables):\n";
  for (const Setting& setting : kSettings) {
    std::string name = std::string("  ") + setting.variable;
    name.resize(std::max(name.size() + 2, kNameWidth), ' ');
    text += name + setting.meaning + " [" + setting.values() + "; " + default_of(setting) +
            (setting.ranks == Ranks::may_differ ? "; ranks may differ" : "") + "]\n";
  }
  return text;
}

std::string settings_to_compare(const Settings& settings) {
  std::string text;
  for (const Setting& setting : kSettings) {
    if (setting.ranks == Ranks::may_differ) continue;
    text += std::string(setting.variable) + "=" + setting.write(settings) + "\n";
  }
  return text;
}

void require_valid(const Settings& settings) {
  std::string error = settings.environment_error;
  Settings scratch;
  for (const Setting& setting : kSettings) {
    if (error.empty()) error = read(setting, scratch, setting.write(settings));
  }
  if (!error.empty()) throw Error(ErrorCode::invalid_argument, error);
}

}  // namespace tutti
