// SPDX-License-Identifier: Apache-2.0
#include "tutti/settings.hpp"

#include <doctest/doctest.h>

#include "tutti/error.hpp"

using namespace tutti;

namespace {

using Variables = std::map<std::string, std::string>;

Settings read(const Variables& variables) {
  std::vector<std::string> warnings;
  return Settings::from_variables(variables, warnings);
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
  const Settings settings = read({{"TUTTI_TIMEOUT", "2.5"},
                                  {"TUTTI_GRACE", "0.5"},
                                  {"TUTTI_RANKS_PER_NODE", "3,5"},
                                  {"TUTTI_REPRODUCIBLE", "1"},
                                  {"TUTTI_CHUNK_BYTES", "64K"},
                                  {"TUTTI_PIECE_BYTES", "1MiB"},
                                  {"TUTTI_ALGORITHMS", "exchange=halving"},
                                  {"TUTTI_ARENA_BYTES", "2G"},
                                  {"TUTTI_SHARED_MEMORY", "shm"},
                                  {"TUTTI_GPU_PATH", "host"},
                                  {"TUTTI_VERIFY", "full"},
                                  {"TUTTI_LOG", "info"},
                                  {"TUTTI_STATISTICS", "1"},
                                  {"TUTTI_PROMETHEUS", "a.prom"},
                                  {"TUTTI_TRACE", "a.json"}});
  CHECK(settings.timeout.count() == 2.5);
  CHECK(settings.grace.count() == 0.5);
  CHECK(settings.ranks_per_node == std::vector<int>{3, 5});
  CHECK(settings.reproducible);
  CHECK(settings.chunk_bytes == 64 * 1024);
  CHECK(settings.piece_bytes == 1024 * 1024);
  CHECK(settings.algorithms == "exchange=halving");
  CHECK(settings.arena_bytes == std::size_t{2} << 30);
  CHECK(settings.shared_memory == "shm");
  CHECK(settings.verify == Verify::full);
  CHECK(settings.log == LogLevel::info);
  CHECK(settings.statistics == "1");
  CHECK(settings.prometheus == "a.prom");
  CHECK(settings.trace == "a.json");
}

TEST_CASE("a value that cannot be read is refused with variable, value and what is expected") {
  CHECK(refusal_of({{"TUTTI_TIMEOUT", "soon"}}) ==
        "TUTTI_TIMEOUT=soon: expected a number of seconds above 0, such as 300 or 2.5");
  CHECK(refusal_of({{"TUTTI_TIMEOUT", "-1"}}).find("above 0") != std::string::npos);
  CHECK(read({{"TUTTI_TIMEOUT", "0"}}).timeout.count() == 0);  // never
  CHECK(refusal_of({{"TUTTI_TIMEOUT", "5m"}}).find("TUTTI_TIMEOUT=5m") != std::string::npos);
  CHECK(refusal_of({{"TUTTI_RANKS_PER_NODE", "3,0"}}) ==
        "TUTTI_RANKS_PER_NODE=3,0: expected numbers of ranks above 0, such as 4 or 3,5");
  CHECK(refusal_of({{"TUTTI_REPRODUCIBLE", "yes"}}) == "TUTTI_REPRODUCIBLE=yes: expected 0 or 1");
  CHECK(refusal_of({{"TUTTI_CHUNK_BYTES", "100"}}) ==
        "TUTTI_CHUNK_BYTES=100: expected 4K to 16M, a multiple of 64 bytes");
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

TEST_CASE("the help names every variable") {
  const std::string help = Settings::help();
  for (const char* name :
       {"TUTTI_TIMEOUT", "TUTTI_GRACE", "TUTTI_RANKS_PER_NODE", "TUTTI_REPRODUCIBLE",
        "TUTTI_CHUNK_BYTES", "TUTTI_PIECE_BYTES", "TUTTI_ARENA_BYTES", "TUTTI_SHARED_MEMORY",
        "TUTTI_VERIFY", "TUTTI_LOG"}) {
    CHECK(help.find(name) != std::string::npos);
  }
}
