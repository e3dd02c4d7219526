// SPDX-License-Identifier: Apache-2.0
// The simulator's parts: networks as files, and the textbook's algorithms.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include <tutti/error.hpp>

#include "apps/simulator/measure.hpp"
#include "apps/simulator/network_file.hpp"
#include "apps/simulator/textbook.hpp"

using namespace apps::simulator;
using Json = nlohmann::json;

namespace {

Json whole_network() {
  return {{"name", "a"},          {"latency_us", 10},    {"overhead_us", 1},
          {"gap_us", 0},          {"port_mbit_s", 1000}, {"header_bytes", 60},
          {"eager_bytes", 65536}, {"call_ns", 300},      {"signal_ns", 100},
          {"core_gb_s", 10},      {"node_gb_s", 100},    {"incoming_limited", false}};
}

/// What is said of a network with this in it; empty if it is taken.
std::string refusal_of(const std::string& text) {
  try {
    network_of(text, "the file");
  } catch (const tutti::Error& error) {
    CHECK(error.code() == tutti::ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

std::string refusal_with(const std::string& name, const Json& value) {
  Json json = whole_network();
  json[name] = value;
  return refusal_of(json.dump());
}

void check_sums(Case what, std::span<const std::size_t> sizes) {
  for (const std::size_t bytes : sizes) {
    what.bytes = bytes;
    CAPTURE(what.algorithm);
    CAPTURE(what.ranks());
    CHECK(measure(NamedNetwork{}, what).wrong == std::uint64_t{0});
  }
}

}  // namespace

TEST_CASE("a network has all its numbers, in the units of their names") {
  const auto read = network_of(whole_network().dump(), "the file");
  CHECK(read.name == "a");
  CHECK(read.network.latency == doctest::Approx(10e-6));
  CHECK(read.network.port_rate == doctest::Approx(125e6));
  CHECK(read.network.signal == doctest::Approx(100e-9));
  CHECK(read.network.core_rate == doctest::Approx(10e9));
  CHECK(read.network.eager_bytes == 65536);
  CHECK(!read.network.incoming_limited);
  const Json whole = whole_network();
  for (const auto& [name, value] : whole.items()) {
    Json json = whole_network();
    json.erase(name);
    CHECK(refusal_of(json.dump()) ==
          "the file: \"" + name + "\" is missing; a network has all its numbers");
  }
}

TEST_CASE("what is no network is refused by name") {
  CHECK(refusal_of("[") == "the file: not a JSON object");
  CHECK(refusal_of("[1]") == "the file: not a JSON object");
  CHECK(refusal_with("name", 3) == "the file: \"name\" is 3; expected: a text");
  CHECK(refusal_with("latency_us", -1) ==
        "the file: \"latency_us\" is -1; expected: a number that is not negative");
  CHECK(refusal_with("port_mbit_s", 0) ==
        "the file: \"port_mbit_s\" is 0; expected: a number above 0");
  CHECK(refusal_with("core_gb_s", "fast") ==
        "the file: \"core_gb_s\" is \"fast\"; expected: a number above 0");
  CHECK(refusal_with("incoming_limited", 1) ==
        "the file: \"incoming_limited\" is 1; expected: true or false");
  CHECK(refusal_with("latency", 1) == "the file: \"latency\" is no number of a network");
  CHECK_THROWS_WITH_AS(read_network("/nowhere/network.json"),
                       "--network: cannot read /nowhere/network.json", tutti::Error);
}

TEST_CASE("the textbook's sums are right, for all numbers of nodes and ranks") {
  constexpr std::size_t kSizes[] = {4, 4084};  // one element, and an odd number of them
  for (const Textbook& algorithm : textbook_algorithms()) {
    for (const int nodes : {1, 2, 3, 5, 6, 8, 13}) {
      for (const int per_node : {1, 3, 4}) check_sums({nodes, per_node, 0, algorithm.name}, kSizes);
    }
  }
}

TEST_CASE("recursive doubling takes its textbook's time") {
  NamedNetwork network;
  network.network.latency = 1e-3;
  network.network.overhead = network.network.call = 0;
  network.network.port_rate = network.network.core_rate = network.network.node_rate = 1e30;
  CHECK(measure(network, {16, 1, 8, "recursive-doubling"}).seconds == doctest::Approx(4e-3));
  CHECK(measure(network, {16, 1, 8, "ring"}).seconds == doctest::Approx(30e-3));
  CHECK(measure(network, {16, 1, 8, "tutti"}).seconds == doctest::Approx(4e-3));
}

TEST_CASE("what does not fit into the memory is refused before it is tried") {
  try {
    measure(NamedNetwork{}, {kMostRanks, 1, std::size_t{1} << 40, "tutti"});
    FAIL("not refused");
  } catch (const tutti::Error& error) {
    CHECK(error.code() == tutti::ErrorCode::out_of_memory);
    CHECK(std::string(error.what()).find("8192 ranks of 1 TiB") != std::string::npos);
  }
}
