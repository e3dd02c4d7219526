// SPDX-License-Identifier: Apache-2.0
#include "tutti/settings.hpp"

#include <algorithm>
#include <cstdlib>
#include <doctest/doctest.h>
#include <sstream>

#include "tutti/communicator.hpp"
#include "tutti/error.hpp"

#include "runtime/job/settings.hpp"

using namespace tutti;

namespace {

using Variables = std::map<std::string, std::string>;

Settings read(const Variables& variables) {
  std::vector<std::string> warnings;
  return Settings::from_variables(variables, warnings);
}

/// Another value than the default, for every setting.
const Variables kOthers = {{"TUTTI_TIMEOUT", "2.5"},
                           {"TUTTI_GRACE", "0.5"},
                           {"TUTTI_RANKS_PER_NODE", "3,5"},
                           {"TUTTI_REPRODUCIBLE", "1"},
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
                           {"TUTTI_TRACE", "a.json"}};

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
  CHECK(settings.chunk_bytes == 256 * 1024);
  CHECK(settings.shared_memory == "auto");
}

TEST_CASE("every variable is read") {
  const Settings settings = read(kOthers);
  CHECK(settings.timeout.count() == 2.5);
  CHECK(settings.grace.count() == 0.5);
  CHECK(settings.ranks_per_node == std::vector<int>{3, 5});
  CHECK(settings.reproducible);
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
}

TEST_CASE("each setting changes its own line of what ranks compare, unless they may differ") {
  const std::vector<std::string> usual = lines_of(settings_to_compare(Settings{}));
  CHECK(usual.size() == kOthers.size() - 2);
  for (const auto& [name, value] : kOthers) {
    CAPTURE(name);
    const std::vector<std::string> lines = lines_of(settings_to_compare(read({{name, value}})));
    REQUIRE(lines.size() == usual.size());
    std::vector<std::string> changed;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (lines[i] != usual[i]) changed.push_back(lines[i]);
    }
    if (name == "TUTTI_LOG" || name == "TUTTI_PROMETHEUS") {
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
  CHECK(read({{"TUTTI_TIMEOUT", "0"}}).timeout.count() == 0);  // never
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
        "TUTTI_GPU_PATH=rdma: expected auto, nccl or host");
  CHECK(refusal_of({{"TUTTI_LOG", "1"}}) == "TUTTI_LOG=1: expected quiet, warning, info or debug");
  CHECK(refusal_of({{"TUTTI_VERIFY", "1"}}) == "TUTTI_VERIFY=1: expected off, sampled or full");
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
  for (const auto& [name, value] : kOthers) {
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
  CHECK(has(" [bytes, such as 64M or 64MiB; default 0: the machine's memory]"));
  CHECK(has(" [quiet, warning, info or debug; default warning; ranks may differ]"));
  CHECK(has(" [a file; default: none]"));
}
