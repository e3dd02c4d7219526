// SPDX-License-Identifier: Apache-2.0
// Settings, and the environment from which they are read.
#include "tutti/settings.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tutti/communicator.hpp"
#include "tutti/error.hpp"

#include "runtime/job/arena.hpp"
#include "runtime/job/memory_limits.hpp"
#include "runtime/job/settings.hpp"
#include "runtime/mpi/rank_info.hpp"
#include "tests/support/emulated.hpp"
#include "tests/support/scratch_folder.hpp"

using namespace tutti;

namespace {

using Variables = std::map<std::string, std::string>;

Settings read(const Variables& variables) {
  std::vector<std::string> warnings;
  return Settings::from_variables(variables, warnings);
}

/// A value other than the default for every setting.
const Variables kOthers = {{"TUTTI_TIMEOUT", "2.5"},
                           {"TUTTI_GRACE", "0.5"},
                           {"TUTTI_RANKS_PER_NODE", "3,5"},
                           {"TUTTI_REPRODUCIBLE", "1"},
                           {"TUTTI_ASYNC", "1"},
                           {"TUTTI_CHUNK_BYTES", "64K"},
                           {"TUTTI_PIECE_BYTES", "1M"},
                           {"TUTTI_ALGORITHMS", "exchange=halving"},
                           {"TUTTI_ARENA_BYTES", "2G"},
                           {"TUTTI_SHARED_MEMORY", "shm"},
                           {"TUTTI_GPU_PATH", "host"},
                           {"TUTTI_VERIFY", "full"},
                           {"TUTTI_LOG", "info"},
                           {"TUTTI_STATISTICS", "1"},
                           {"TUTTI_PROMETHEUS", "a.prom"},
                           {"TUTTI_TRACE", "a.json"},
                           {"TUTTI_TUNING", "static"},
                           {"TUTTI_THREADS", "3"},
                           {"TUTTI_LAUNCHER", "ignore"},
                           {"TUTTI_MPI", "mpich"},
                           {"TUTTI_SNAPSHOTS", "/dev/shm/a"},
                           {"TUTTI_SNAPSHOT_EVERY", "1.5"}};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string invalid(const Settings& settings) {
  try {
    require_valid(settings);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    return error.what();
  }
  return "is valid";
}

std::string refusal_of(const Variables& variables) {
  try {
    read(variables);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    return error.what();
  }
  return "was accepted";
}

}  // namespace

TEST_CASE("without variables the settings have their defaults") {
  const Settings settings = read({});
  CHECK(settings.timeout.count() == 300.0);
  CHECK(settings.ranks_per_node.empty());
  CHECK_FALSE(settings.reproducible);
  CHECK_FALSE(settings.asynchronous);
  CHECK(settings.chunk_bytes == 256 * 1024);
  CHECK(settings.shared_memory == "auto");
}

TEST_CASE("every variable is read") {
  const Settings settings = read(kOthers);
  CHECK(settings.timeout.count() == 2.5);
  CHECK(settings.grace.count() == 0.5);
  CHECK(settings.ranks_per_node == std::vector<int>{3, 5});
  CHECK(settings.reproducible);
  CHECK(settings.asynchronous);
  CHECK(settings.chunk_bytes == 64 * 1024);
  CHECK(settings.piece_bytes == 1024 * 1024);
  CHECK(settings.algorithms == "exchange=halving");
  CHECK(settings.arena_bytes == std::size_t{2} << 30);
  CHECK(settings.shared_memory == "shm");
  CHECK(settings.gpu_path == "host");
  CHECK(settings.verify == Verify::full);
  CHECK(settings.log == LogLevel::info);
  CHECK(settings.statistics == "1");
  CHECK(settings.prometheus == "a.prom");
  CHECK(settings.trace == "a.json");
  CHECK(settings.tuning == "static");
  CHECK(settings.threads == 3);
  CHECK(settings.launcher == "ignore");
  CHECK(settings.mpi == "mpich");
  CHECK(settings.snapshots == "/dev/shm/a");
  CHECK(settings.snapshot_every.count() == 1.5);
}

TEST_CASE("each setting changes its own line of what ranks compare, unless they may differ") {
  const std::vector<std::string> usual = lines_of(settings_to_compare(Settings{}));
  CHECK(usual.size() == kOthers.size() - 3);
  for (const auto& [variable, value] : kOthers) {
    const auto& name = variable;  // clang before version 16 captures no structured binding
    CAPTURE(name);
    const std::vector<std::string> lines = lines_of(settings_to_compare(read({{name, value}})));
    REQUIRE(lines.size() == usual.size());
    std::vector<std::string> changed;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (lines[i] != usual[i]) changed.push_back(lines[i]);
    }
    if (name == "TUTTI_LOG" || name == "TUTTI_PROMETHEUS" || name == "TUTTI_MPI") {
      CHECK(changed.empty());
    } else {
      CHECK(changed == std::vector<std::string>{std::string(name).append("=").append(value)});
    }
  }
}

TEST_CASE("what a program fills in itself has the limits of the variables") {
  CHECK(invalid(Settings{}) == "is valid");
  CHECK(invalid(read(kOthers)) == "is valid");
  Settings settings;
  settings.chunk_bytes = 100;
  CHECK(invalid(settings) == "TUTTI_CHUNK_BYTES=100: expected 4K to 16M, a multiple of 64 bytes");
  CHECK_THROWS_AS(Communicator::self(settings), Error);
  settings = {};
  settings.piece_bytes = std::size_t{32} << 20;
  CHECK(invalid(settings) == "TUTTI_PIECE_BYTES=32M: expected 4K to 16M, a multiple of 64 bytes");
  settings = {};
  settings.shared_memory = "posix";
  CHECK(invalid(settings) == "TUTTI_SHARED_MEMORY=posix: expected auto, memfd, shm or none");
  settings = {};
  settings.verify = static_cast<Verify>(7);
  CHECK(invalid(settings) == "TUTTI_VERIFY=7: expected off, sampled or full");
  settings = {};
  settings.threads = -1;
  CHECK(invalid(settings) == "TUTTI_THREADS=-1: expected 0 (automatic) to 256");
  settings = {};
  settings.mpi = "lam";
  CHECK(invalid(settings) ==
        "TUTTI_MPI=lam: expected auto, openmpi, mpich, standard, or the path of an MPI's library");
}

TEST_CASE("what the environment has wrong is kept, and thrown by what is created with it") {
  REQUIRE(setenv("TUTTI_TIMEOUT", "abc", 1) == 0);
  REQUIRE(setenv("TUTTI_LOG", "quiet", 1) == 0);
  const Settings settings = Settings::from_environment();
  unsetenv("TUTTI_TIMEOUT");
  unsetenv("TUTTI_LOG");
  const std::string expected =
      "TUTTI_TIMEOUT=abc: expected a number of seconds up to 1e9, 0: never";
  CHECK(settings.environment_error == expected);
  CHECK(settings.log == LogLevel::quiet);
  CHECK(invalid(settings) == expected);
  CHECK_THROWS_WITH_AS(Communicator::self(settings), expected.c_str(), Error);
}

TEST_CASE("a value that cannot be read is refused with variable, value and what is expected") {
  CHECK(refusal_of({{"TUTTI_TIMEOUT", "soon"}}) ==
        "TUTTI_TIMEOUT=soon: expected a number of seconds up to 1e9, 0: never");
  CHECK(refusal_of({{"TUTTI_TIMEOUT", "-1"}}).find("TUTTI_TIMEOUT=-1") == 0);
  CHECK(refusal_of({{"TUTTI_GRACE", "0"}}) ==
        "TUTTI_GRACE=0: expected a number of seconds above 0, up to 1e9");
  CHECK(read({{"TUTTI_TIMEOUT", "0"}}).timeout.count() == 0);  // no deadline
  CHECK(refusal_of({{"TUTTI_TIMEOUT", "5m"}}).find("TUTTI_TIMEOUT=5m") != std::string::npos);
  CHECK(refusal_of({{"TUTTI_RANKS_PER_NODE", "3,0"}}) ==
        "TUTTI_RANKS_PER_NODE=3,0: expected numbers of ranks above 0, such as 4 or 3,5");
  CHECK(refusal_of({{"TUTTI_REPRODUCIBLE", "yes"}}) == "TUTTI_REPRODUCIBLE=yes: expected 0 or 1");
  CHECK(refusal_of({{"TUTTI_CHUNK_BYTES", "100"}}) ==
        "TUTTI_CHUNK_BYTES=100: expected 4K to 16M, a multiple of 64 bytes");
  CHECK(refusal_of({{"TUTTI_ARENA_BYTES", "some"}}) ==
        "TUTTI_ARENA_BYTES=some: expected bytes, such as 64M or 64MiB");
  CHECK(refusal_of({{"TUTTI_SHARED_MEMORY", "posix"}}) ==
        "TUTTI_SHARED_MEMORY=posix: expected auto, memfd, shm or none");
  CHECK(refusal_of({{"TUTTI_GPU_PATH", "rdma"}}) ==
        "TUTTI_GPU_PATH=rdma: expected auto, nccl, nccl-all, host or peers");
  CHECK(refusal_of({{"TUTTI_LOG", "1"}}) == "TUTTI_LOG=1: expected quiet, warning, info or debug");
  CHECK(refusal_of({{"TUTTI_VERIFY", "1"}}) == "TUTTI_VERIFY=1: expected off, sampled or full");
  for (const std::string wrong : {"-1", "257", "two", "2x", ""}) {
    CHECK(refusal_of({{"TUTTI_THREADS", wrong}}) ==
          "TUTTI_THREADS=" + wrong + ": expected 0 (automatic) to 256");
  }
}

TEST_CASE("a misspelt variable is a warning that names the nearest setting") {
  std::vector<std::string> warnings;
  Settings::from_variables({{"TUTTI_TIMOUT", "5"}, {"OTHER", "1"}}, warnings);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0] == "TUTTI_TIMOUT is not a setting; did you mean TUTTI_TIMEOUT?");
}

TEST_CASE("sizes take suffixes in powers of 1024") {
  CHECK(parse_bytes("0") == 0);
  CHECK(parse_bytes("1048576") == 1048576);
  CHECK(parse_bytes("64M") == parse_bytes("64MiB"));
  CHECK(parse_bytes("64mib") == std::size_t{64} << 20);
  CHECK(parse_bytes("3G") == std::size_t{3} << 30);
  CHECK(parse_bytes("1KB") == 1024);
}

TEST_CASE("what is not a size is refused") {
  for (const char* text :
       {"", "M", "-1", "1.5M", "64Q", "64 M", "99999999999999999999", "99999999999999G"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_bytes(text), Error);
  }
}

TEST_CASE("the help has a line for every setting, with its default and what may differ") {
  const std::vector<std::string> lines = lines_of(Settings::help());
  CHECK(lines.size() == kOthers.size() + 1);
  for (const auto& [variable, value] : kOthers) {
    const auto& name = variable;  // clang before version 16 captures no structured binding
    CAPTURE(name);
    CHECK(std::ranges::count_if(lines, [start = "  " + name + " "](const std::string& line) {
            return line.starts_with(start);
          }) == 1);
  }
  const auto has = [&](const std::string& ending) {
    return std::ranges::any_of(lines,
                               [&](const std::string& line) { return line.ends_with(ending); });
  };
  CHECK(has(" [4K to 16M, a multiple of 64 bytes; default 256K]"));
  CHECK(has(" [bytes, such as 64M or 64MiB; default 0: twice its share of the machine's memory]"));
  CHECK(has(" [quiet, warning, info or debug; default warning; ranks may differ]"));
  CHECK(has(" [a file; default: none]"));
}

// --- the environment -----------------------------------------------------------------------------

// Obstacles of the machine to a job: limits, other users, another version of the library.

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

mode_t mode_of(const std::string& path) {
  struct stat info {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  return info.st_mode & 0777;
}

std::string text_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

mpi::RankCard card_on(const char* host) {
  mpi::RankCard card{};
  std::snprintf(card.host, sizeof card.host, "%s", host);
  std::snprintf(card.version, sizeof card.version, "0.1.0");
  card.control_bytes = 4096;
  return card;
}

}  // namespace

TEST_CASE("shared memory belongs to its user alone, under names that cannot be foreseen") {
  std::set<std::string> names;
  for (int i = 0; i < 3; ++i) {
    const Arena arena(Backing::dev_shm, kMiB);
    const std::string name = arena.address().name;
    CHECK(mode_of(name) == 0600);
    CHECK(names.insert(name.substr(name.rfind('-'))).second);
  }
  for (const std::string& name : names) CHECK(name.size() >= 1 + 16);
  const Arena arena(Backing::memfd, kMiB);
  CHECK(mode_of("/proc/self/fd/" + std::to_string(arena.address().file)) == 0600);
}

TEST_CASE("nothing is left in /dev/shm after an arena") {
  std::string name;
  {
    const Arena arena(Backing::dev_shm, kMiB);
    name = arena.address().name;
    CHECK(access(name.c_str(), F_OK) == 0);
  }
  CHECK(access(name.c_str(), F_OK) != 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they reserve terabytes
TEST_CASE("with ulimit -v a store takes less, and an allocation beyond it names the limit" *
          doctest::skip(test::is_emulated())) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{1024 * kMiB, 1024 * kMiB};
    setrlimit(RLIMIT_AS, &limit);
    Settings settings;
    const std::string text = text_of([&] {
      Communicator comm = Communicator::self(settings);
      const Tensor fits = comm.allocate({64, 1 << 18});
      const Tensor large = comm.allocate({1024, 1 << 18});
    });
    const bool right = text.find("out_of_memory") == 0 &&
                       text.find("ulimit -v") != std::string::npos &&
                       text.find("TUTTI_ARENA_BYTES") != std::string::npos;
    if (!right) static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
    _exit(right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}
#endif

TEST_CASE("ranks with other versions of the library are refused, with both versions") {
  const mpi::RankCard first = card_on("a");
  mpi::RankCard other = card_on("b");
  std::array<mpi::SettingsText, 2> texts = {
      {{"TUTTI_TIMEOUT=300\nTUTTI_GRACE=30\n"}, {"TUTTI_TIMEOUT=5\nTUTTI_GRACE=30\n"}}};
  int exchanges = 0;
  const auto refusal = [&](int rank) {
    return text_of([&] {
      mpi::require_equal_cards(first, other, 1, rank, [&] {
        ++exchanges;
        return texts;
      });
    });
  };
  const auto says = [](const std::string& text, const char* words) {
    return text.find(words) != std::string::npos;
  };
  CHECK(refusal(1) == "no error");
  std::snprintf(other.version, sizeof other.version, "0.2.0");
  const std::string text = refusal(1);
  for (const char* words : {"invalid_argument", "library version", "rank 0 (host a) has 0.1.0",
                            "rank 1 (host b) has 0.2.0", "the same program"}) {
    CHECK(says(text, words));
  }
  other = card_on("b");
  other.control_bytes = 8192;
  CHECK(says(refusal(0), "(layout 8192)"));
  CHECK(exchanges == 0);
  other = card_on("b");
  other.settings_digest = 7;
  CHECK(says(refusal(0),
             "differ in their settings: rank 0 (host a) has TUTTI_TIMEOUT=300, rank 1 (host b) has "
             "TUTTI_TIMEOUT=5; start all ranks"));
  CHECK(exchanges == 1);
  texts[1] = texts[0];  // as the text of a rank that does not fit
  CHECK(says(refusal(0), "rank 0 (host a) has a digest of 0, rank 1 (host b) has one of 7"));
}

namespace {

/// Files of cgroups, as the kernel shows them.
class Cgroups {
 public:
  explicit Cgroups(const std::string& lines) { write("groups", lines); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder_.path() / path).parent_path());
    std::ofstream(folder_.path() / path) << text;
  }
  [[nodiscard]] std::optional<std::size_t> available() const {
    return cgroup_available(folder_.path() / "groups", folder_.path());
  }

 private:
  test::ScratchFolder folder_;
};

}  // namespace

TEST_CASE("of the limits of a cgroup and of those above it the least counts") {
  Cgroups groups("0::/job/rank\n");
  CHECK_FALSE(groups.available());
  groups.write("job/rank/memory.max", "max\n");
  groups.write("job/rank/memory.current", "700\n");
  CHECK_FALSE(groups.available());
  groups.write("job/memory.max", "1000\n");
  groups.write("job/memory.current", "900\n");
  CHECK(groups.available() == 100);
  groups.write("job/rank/memory.max", "750\n");
  CHECK(groups.available() == 50);
  groups.write("memory.max", "10\n");  // the form in which a container sees its own group
  groups.write("memory.current", "20\n");
  CHECK(groups.available() == 0);
}

TEST_CASE("what a cgroup keeps of files is available, and a group without a path is none") {
  Cgroups groups("0::/job\n");
  groups.write("job/memory.max", "1000\n");
  groups.write("job/memory.current", "1000\n");
  groups.write("job/memory.stat", "anon 300\nfile 700\ninactive_file 400\nactive_file 200\n");
  CHECK(groups.available() == 600);
  groups.write("groups", "0::\n0\n\n");
  CHECK_FALSE(groups.available());
}

TEST_CASE("limits of version 1 count, too") {
  Cgroups groups("5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n");
  groups.write("memory/job/memory.limit_in_bytes", "1000\n");
  groups.write("memory/job/memory.usage_in_bytes", "950\n");
  groups.write("memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 30\n");
  groups.write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  groups.write("memory/memory.usage_in_bytes", "5000\n");
  CHECK(groups.available() == 80);
}
