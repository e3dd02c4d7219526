// SPDX-License-Identifier: Apache-2.0
// The simulator's parts: networks as files, and the textbook's algorithms.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include <tutti/error.hpp>

#include "apps/simulator/measure.hpp"
#include "apps/simulator/measured_file.hpp"
#include "apps/simulator/network_file.hpp"
#include "apps/simulator/textbook.hpp"

using namespace apps::simulator;
using Json = nlohmann::json;

namespace {

Json whole_network() {
  return {{"name", "a"},          {"latency_us", 10},    {"overhead_us", 1},
          {"gap_us", 0},          {"port_mbit_s", 1000}, {"header_bytes", 60},
          {"eager_bytes", 65536}, {"call_ns", 300},      {"signal_ns", 100},
          {"core_gb_s", 10},      {"node_gb_s", 100},    {"incoming_limited", false},
          {"burst_bytes", 32768}, {"cores", 2},          {"turn_us", 5},
          {"receive_us", 2},      {"poll_us", 1.5},      {"memory_gb_s", 5},
          {"cache_bytes", 1e6}};
}

/// The error of a network file with this text in it; empty if it is accepted.
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

void check_sums(SimulatedCall what, std::span<const std::size_t> sizes) {
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
  CHECK(read.network.burst_bytes == 32768);
  CHECK(read.network.cores == 2);
  CHECK(read.network.turn == doctest::Approx(5e-6));
  CHECK(read.network.receive_overhead == doctest::Approx(2e-6));
  CHECK(read.network.poll == doctest::Approx(1.5e-6));
  CHECK(read.network.memory_rate == doctest::Approx(5e9));
  CHECK(read.network.cache_bytes == doctest::Approx(1e6));
  const Json whole = whole_network();
  for (const auto& [name, value] : whole.items()) {
    Json json = whole_network();
    json.erase(name);
    CHECK(refusal_of(json.dump()) ==
          "the file: \"" + name + "\" is missing; a network has all its numbers");
  }
}

TEST_CASE("on what a network was measured is for readers") {
  Json json = whole_network();
  json["measured"] = {{"processor", "one"}};
  CHECK(refusal_of(json.dump()).empty());
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
  network.network.overhead = network.network.receive_overhead = network.network.call = 0;
  network.network.port_rate = network.network.core_rate = network.network.node_rate = 1e30;
  CHECK(measure(network, {16, 1, 8, "recursive-doubling"}).seconds == doctest::Approx(4e-3));
  CHECK(measure(network, {16, 1, 8, "ring"}).seconds == doctest::Approx(30e-3));
  CHECK(measure(network, {16, 1, 8, "tutti"}).seconds == doctest::Approx(4e-3));
}

TEST_CASE("pushpulls and values in the memory of the node have right sums") {
  constexpr std::size_t kSizes[] = {4, 4084, 300'004};
  for (const char* buffers : {"user", "store"}) {
    for (const char* compression : {"none", "fp16", "bf16,leg=between"}) {
      for (const int nodes : {1, 2, 3, 8}) {
        SimulatedCall what{nodes, 2, 0, "tutti", false, "pushpull", compression, buffers};
        CAPTURE(buffers);
        CAPTURE(compression);
        check_sums(what, kSizes);
        what.begin = Begin::after_barrier;
        check_sums(what, std::span(kSizes).first(1));
      }
    }
    check_sums({3, 2, 0, "tutti", true, "allreduce", "none", buffers}, kSizes);
  }
}

TEST_CASE("what a compression makes of values is not checked, and takes fewer bytes") {
  const SimulatedCall whole{2, 1, 1 << 20, "tutti", false, "pushpull"};
  SimulatedCall packed = whole;
  packed.compression = "2bit";
  NamedNetwork network;
  network.network.core_rate = network.network.node_rate = 1e11;  // packing takes time, too
  const Measured all = measure(network, whole);
  const Measured few = measure(network, packed);
  CHECK(all.wrong == std::uint64_t{0});
  CHECK(!few.wrong);
  CHECK(few.traffic.most_bytes_of_link * 10 < all.traffic.most_bytes_of_link);
  CHECK(few.seconds < all.seconds);
}

TEST_CASE("what does not fit into the caches takes the time of memory") {
  NamedNetwork network;
  network.network.core_rate = network.network.node_rate = 1e10;
  network.network.memory_rate = 1e9;
  network.network.port_rate = 1e30;
  const SimulatedCall what{2, 1, 1 << 20, "tutti", false};
  const double of_caches = measure(network, what).seconds;
  // The input and output of each node fit into its own caches.
  network.network.cache_bytes = 2 << 20;
  CHECK(measure(network, what).seconds == of_caches);
  network.network.cores = 2;  // all nodes are of one machine
  CHECK(measure(network, what).seconds > 3 * of_caches);
}

TEST_CASE("a call right after others finds the links as they have left them") {
  NamedNetwork network;
  network.network.burst_bytes = 100'000;
  network.network.port_rate = 1e6;
  SimulatedCall what{2, 1, 32'768, "tutti", false};
  CHECK(measure(network, what).seconds < 1e-3);  // it passes at once
  what.begin = Begin::after_barrier;
  CHECK(measure(network, what).seconds == doctest::Approx(32.9e-3).epsilon(0.02));
}

TEST_CASE("the critical path says what each of the textbook's rounds takes") {
  NamedNetwork network;
  network.network = {
      .latency = 1e-3, .overhead = 1e-4, .receive_overhead = 1e-4, .port_rate = 1e6, .call = 1e-5};
  network.network.core_rate = network.network.node_rate = 1e30;
  const Measured one = measure(network, {16, 1, 1000, "recursive-doubling"});
  const auto on = [&](tutti::simulated::Spent what) {
    return one.path.on[static_cast<std::size_t>(what)];
  };
  using tutti::simulated::Spent;
  CHECK(on(Spent::call) == doctest::Approx(1e-5));
  CHECK(on(Spent::latency) == doctest::Approx(4e-3));
  CHECK(on(Spent::wire) == doctest::Approx(4e-3));
  CHECK(on(Spent::overhead) == doctest::Approx(8e-4));
  CHECK(one.path.other == 0);
  CHECK(one.path.seconds == doctest::Approx(one.seconds));
  CHECK(one.path.hops.size() == 1 + 4 * 4);
  CHECK(one.traffic.most_bytes_of_link == 4000);
  for (const char* part :
       {"latency 4000.0, ", "wire 4000.0, ", "overhead 800.0, call 10.00, ", "in us; 17 hops"}) {
    CHECK(to_text(one.path).find(part) != std::string::npos);
  }
}

TEST_CASE("a critical path has all the time of a call of the library's") {
  NamedNetwork network;
  network.network.cores = 2;
  network.network.turn = 1e-5;
  for (const int nodes : {2, 3, 9}) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{100'000}, std::size_t{1} << 20}) {
      const Measured one = measure(network, {nodes, 2, bytes, "tutti", false});
      double sum = one.path.other;
      for (const double seconds : one.path.on) sum += seconds;
      CHECK(sum == doctest::Approx(one.seconds));
      CHECK(one.path.other < 0.01 * one.seconds);
    }
  }
}

namespace {

Json benchmark_file() {
  return {{"config", {{"ranks_per_node", Json::array()}, {"compression", nullptr}}},
          {"environment", {{"nodes", 2}, {"ranks", 4}}},
          {"results",
           {{{"collective", "allreduce"},
             {"backend", "tutti"},
             {"buffers", "store"},
             {"in_place", false},
             {"bytes", 64},
             {"type", "float32"},
             {"redop", "sum"},
             {"time_us", {{"p50", 12.5}}}}}}};
}

std::string refusal_of_benchmark(const Json& file) {
  try {
    measured_of(file.dump(), "the file", true);
  } catch (const tutti::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the cases of a benchmark's file are those that are simulated") {
  Json file = benchmark_file();
  auto all = measured_of(file.dump(), "the file", true);
  REQUIRE(all.size() == 1);
  CHECK(all[0].seconds == doctest::Approx(12.5e-6));
  CHECK(all[0].what.nodes == 2);
  CHECK(all[0].what.ranks_per_node == 2);
  CHECK(all[0].what.bytes == 64);
  CHECK(all[0].what.buffers == "store");
  CHECK(all[0].what.learns);
  CHECK(all[0].what.begin == Begin::after_barrier);
  file["config"]["compression"] = "2bit,threshold=0.5";
  file["results"][0]["collective"] = "pushpull";
  all = measured_of(file.dump(), "the file", false);
  CHECK(all[0].what.collective == "pushpull");
  CHECK(all[0].what.compression == "2bit,threshold=0.5");
  CHECK(!all[0].what.learns);
}

TEST_CASE("a file that has nothing to simulate is refused") {
  Json file = benchmark_file();
  file["results"][0]["backend"] = "mpi";
  CHECK(refusal_of_benchmark(file) ==
        "--measured: the file: has no allreduce or pushpull of Tutti's of float32 sums, out of "
        "place, on CPUs: nothing else is simulated");
  file = benchmark_file();
  file["results"][0]["buffers"] = "gpu";
  CHECK(refusal_of_benchmark(file).find("on CPUs: nothing else is simulated") != std::string::npos);
  file = benchmark_file();
  file["environment"]["ranks"] = 3;
  CHECK(refusal_of_benchmark(file) ==
        "--measured: the file: got 3 ranks on 2 nodes; expected: hosts with equally many ranks, "
        "not split into nodes");
  file["environment"]["ranks"] = 2 * kMostRanks;
  CHECK(refusal_of_benchmark(file) ==
        "--measured: the file: got " + std::to_string(2 * kMostRanks) +
            " ranks; expected: at most " + std::to_string(kMostRanks));
  file.erase("environment");
  CHECK(refusal_of_benchmark(file).find(
            "--measured: the file: expected a --json of collective-benchmark: ") == 0);
  CHECK_THROWS_WITH_AS(read_measured("/nowhere", true), "--measured: /nowhere: cannot be read",
                       tutti::Error);
}

TEST_CASE("what does not fit into the memory is refused before it is tried") {
  try {
    measure(NamedNetwork{}, {kMostRanks, 1, std::size_t{1} << 40, "tutti"});
    FAIL("not refused");
  } catch (const tutti::Error& error) {
    CHECK(error.code() == tutti::ErrorCode::out_of_memory);
    CHECK(std::string(error.what()).find("16384 ranks of 1 TiB") != std::string::npos);
  }
}
