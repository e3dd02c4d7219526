// SPDX-License-Identifier: Apache-2.0
// Simulated clusters: their results are those of real jobs, and their times those of the network.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <doctest/doctest.h>
#include <fstream>
#include <malloc.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "tutti/error.hpp"

#include "collectives/wait/transport.hpp"
#include "runtime/simulated/cluster.hpp"
#include "unit/threads.hpp"

using namespace tutti;
using simulated::Cluster;
using simulated::kSecond;
using simulated::Network;
using simulated::Time;

namespace {

Settings quiet(double timeout_seconds = 10) {
  Settings settings;
  settings.log = LogLevel::quiet;
  settings.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(timeout_seconds));
  return settings;
}

std::vector<int> nodes_of(int nodes, int ranks_per_node) {
  return std::vector<int>(static_cast<std::size_t>(nodes), ranks_per_node);
}

int rounds_of(int nodes) { return std::bit_width(static_cast<unsigned>(nodes - 1)); }

/// A network on which only the latency between nodes takes time.
Network pure_latency() {
  Network network;
  network.latency = 1e-3;
  network.overhead = network.receive_overhead = network.gap = network.signal = network.call = 0;
  network.port_rate = network.core_rate = network.node_rate = 1e30;
  network.eager_bytes = std::size_t{1} << 40;
  return network;
}

/// The number of sums of several sizes that were, on some rank, not those of real jobs.
int wrong_sums_on(const std::vector<int>& node_sizes) {
  const std::vector<std::size_t> counts{0, 1, 3, 1021, 5000, 100'003};
  const auto expected = test::summands_of(test::size_of_job(node_sizes), counts);
  Cluster cluster(Network{}, node_sizes, quiet());
  int wrong = 0;
  const auto outcomes = cluster.run([&](Communicator& comm) {
    for (const test::Summands& one : expected) {
      std::vector<float> values = one.inputs[static_cast<std::size_t>(comm.rank())];
      comm.allreduce(view(values.data(), {static_cast<std::int64_t>(values.size())}));
      if (values != one.sum) ++wrong;
    }
  });
  CHECK(test::all_returned(outcomes));
  return wrong;
}

/// The time when each call of all kinds ended on each rank.
std::vector<Time> times_of_a_job(const std::vector<int>& node_sizes) {
  Cluster cluster(Network{}, node_sizes, quiet());
  std::vector<Time> times;
  const auto outcomes = cluster.run([&](Communicator& comm) {
    for (const std::size_t count : {1U, 700U, 60'000U}) {
      std::vector<float> values = test::values_of(comm.rank(), count);
      comm.allreduce(view(values.data(), {static_cast<std::int64_t>(count)}));
      times.push_back(cluster.simulation().now());
      comm.broadcast(view(values.data(), {static_cast<std::int64_t>(count)}), comm.size() - 1);
      times.push_back(cluster.simulation().now());
    }
  });
  CHECK(test::all_returned(outcomes));
  return times;
}

}  // namespace

TEST_CASE("sums on simulated clusters have the bits of every other job") {
  for (const int nodes : {1, 2, 3, 5, 8, 9, 13, 16}) {
    for (const int per_node : {1, 2, 4}) {
      CAPTURE(nodes);
      CAPTURE(per_node);
      CHECK(wrong_sums_on(nodes_of(nodes, per_node)) == 0);
    }
  }
}

TEST_CASE("two simulations of a job take the same times, to the picosecond") {
  for (const auto& node_sizes :
       {nodes_of(2, 2), nodes_of(11, 3), std::vector<int>{3, 1, 4, 1, 5}}) {
    const std::vector<Time> times = times_of_a_job(node_sizes);
    REQUIRE(!times.empty());
    CHECK(times.back() > 0);
    CHECK(times == times_of_a_job(node_sizes));
  }
}

namespace {

/// The time when each rank has ended so many small allreduces, on a network of latency alone.
std::vector<Time> ends_of(int nodes, int calls) {
  Cluster cluster(pure_latency(), nodes_of(nodes, 1), quiet());
  std::vector<Time> ends(static_cast<std::size_t>(nodes));
  const auto outcomes = cluster.run([&](Communicator& comm) {
    for (int call = 0; call < calls; ++call) {
      float value = 1;
      comm.allreduce(view(&value, {1}));
      CHECK(value == static_cast<float>(nodes));
    }
    ends[static_cast<std::size_t>(comm.rank())] = cluster.simulation().now();
  });
  CHECK(test::all_returned(outcomes));
  return ends;
}

}  // namespace

TEST_CASE("on a network of latency alone a small allreduce takes as many of them as rounds") {
  constexpr Time kLatency = kSecond / 1000;
  for (const int nodes : {2, 3, 7, 8, 9, 16, 24, 31, 32, 100}) {
    CAPTURE(nodes);
    const int rounds = nodes > 7 ? rounds_of(nodes) : 1;  // few nodes send to all others at once
    constexpr int kCalls = 3;
    const std::vector<Time> one = ends_of(nodes, 1);
    const std::vector<Time> several = ends_of(nodes, kCalls);
    CHECK(*std::ranges::max_element(one) == rounds * kLatency);
    CHECK(*std::ranges::max_element(several) <= kCalls * rounds * kLatency);
    // Where N is not a power of two, the nodes of the largest block have the sum a round earlier.
    CHECK(*std::ranges::min_element(one) >= (rounds > 1 ? rounds - 1 : 1) * kLatency);
  }
}

TEST_CASE("nodes that tell all others do not all send to one of them first") {
  Network network = pure_latency();
  network.latency = 5e-3;
  network.overhead = network.receive_overhead = 1e-3;
  for (const std::size_t count :
       {1U, 50'000U}) {  // with the handshakes, and by the direct exchange
    constexpr int kNodes = 7;
    Cluster cluster(network, nodes_of(kNodes, 1), quiet());
    std::vector<Time> ends;
    const auto outcomes = cluster.run([&](Communicator& comm) {
      std::vector<float> values(count);
      cluster.simulation().sleep_until(kSecond);
      comm.allreduce(view(values.data(), {static_cast<std::int64_t>(count)}));
      ends.push_back(cluster.simulation().now() - kSecond);
    });
    CHECK(test::all_returned(outcomes));
    // In each round the last of six messages leaves a node after 6 ms and arrives after 11, and its
    // receiver has received the others by then.
    const int rounds = count == 1 ? 1 : 3;
    const Time longest = *std::max_element(ends.begin(), ends.end());
    CHECK(longest <= rounds * 12 * (kSecond / 1000));
  }
}

namespace {

/// The times, in milliseconds, when messages of these sizes that rank 0 sends at once are on rank
/// 1; then rank 0 rests, and sends them again.
std::vector<double> arrivals(const Network& network, const std::vector<std::size_t>& sizes) {
  simulated::Simulation simulation(network, {1, 1});
  simulated::Wires wires(simulation);
  std::vector<double> all;
  simulation.run([&](int rank) {
    const auto transport = wires.transport_of(rank);
    std::vector<std::byte> room(10'000);
    const auto finish = [&](collectives::Transport::Request request) {
      while (!transport->done(request)) simulation.pace(rank).wait();
    };
    for (const Time begin : {Time{0}, kSecond}) {
      simulation.sleep_until(begin);
      for (const std::size_t bytes : sizes) {
        if (rank == 0) {
          transport->send(1, 0, std::span(room).first(bytes));
        } else {
          finish(transport->receive(0, 0, room));
          all.push_back(static_cast<double>(simulation.now() - begin) / (kSecond / 1000));
        }
      }
    }
  });
  return all;
}

}  // namespace

TEST_CASE("a link that has rested lets a burst pass at once, and the rest at its rate") {
  Network network = pure_latency();  // 1 ms
  network.port_rate = 1e6;
  network.burst_bytes = 1000;
  for (const bool incoming : {true, false}) {
    network.incoming_limited = incoming;
    const std::vector<double> times = arrivals(network, {1500, 2000});
    REQUIRE(times.size() == 4);
    CHECK(times[0] == doctest::Approx(1.5));
    CHECK(times[1] == doctest::Approx(3.5));
    CHECK(times[2] == doctest::Approx(1.5));
    CHECK(times[3] == doctest::Approx(3.5));
  }
  network.burst_bytes = 0;
  CHECK(arrivals(network, {1500}).front() == doctest::Approx(2.5));
}

TEST_CASE("ranks that share a core have it in turn: who waits looks for a while, and gives it on") {
  constexpr Time kMillisecond = kSecond / 1000;
  constexpr Time kLooks = kSecond / 50'000;  // 20 us
  Network network = pure_latency();
  network.cores = 2;  // one for ranks 0 and 2, one for 1 and 3
  network.turn = 1e-3;
  simulated::Simulation simulation(network, nodes_of(4, 1));
  std::vector<Time> worked(4);
  std::vector<Time> woken(4);
  simulation.run([&](int rank) {
    const auto place = static_cast<std::size_t>(rank);
    simulation.spend(kMillisecond, simulated::Spent::work);
    worked[place] = simulation.now();
    if (rank % 2 == 1) return;
    simulation.at_time(kSecond + rank * kMillisecond / 4, [&, rank] { simulation.poke(rank); });
    simulation.pace(rank).wait();
    woken[place] = simulation.now();
    simulation.spend(kMillisecond, simulated::Spent::work);
  });
  const Time second = 2 * kMillisecond;  // the work of the two ranks of a core
  CHECK(worked == std::vector<Time>{kMillisecond, kMillisecond, second + kLooks, second});
  // Since 2.04 ms ranks 0 and 2 look by turns, each every 2 ms.
  CHECK(woken[0] == kSecond + 2 * kLooks);
  CHECK(woken[2] == woken[0] + kMillisecond);  // it waits until rank 0 has done its work
}

namespace {

enum class Call { broadcast, allreduce, allreduce_in_place };

/// The time for which two nodes of one rank work on a call of 1 MB, in units of the time that
/// reading and writing so much takes. Nothing else takes time.
double work_of(Call call, bool shared) {
  constexpr std::int64_t kCount = 250'000;
  constexpr double kRate = 1e9;
  Network network = pure_latency();
  network.latency = 0;
  network.core_rate = kRate;
  Cluster cluster(network, {1, 1}, quiet());
  double seconds = 0;
  const auto outcomes = cluster.run([&](Communicator& comm) {
    Tensor input = shared ? comm.allocate({kCount}) : Tensor::zeros({kCount});
    Tensor other = shared ? comm.allocate({kCount}) : Tensor::zeros({kCount});
    comm.barrier();
    const Time begun = cluster.simulation().now();
    if (call == Call::broadcast) {
      comm.broadcast(input, 0);
    } else {
      comm.allreduce(input, call == Call::allreduce ? other : input);
    }
    seconds = std::max(seconds, static_cast<double>(cluster.simulation().now() - begun) / kSecond);
  });
  CHECK(test::all_returned(outcomes));
  return seconds * kRate / (kCount * sizeof(float));
}

}  // namespace

TEST_CASE("between nodes of one rank the store's memory is not copied") {
  CHECK(work_of(Call::broadcast, /*shared=*/true) < 0.01);
  CHECK(work_of(Call::broadcast, /*shared=*/false) > 1.9);
  // A sum of two halves is read and written; then the other half comes.
  CHECK(work_of(Call::allreduce, true) == doctest::Approx(1.5).epsilon(0.05));
  CHECK(work_of(Call::allreduce_in_place, true) == doctest::Approx(2.5).epsilon(0.05));
  CHECK(work_of(Call::allreduce, false) == doctest::Approx(4.5).epsilon(0.05));
}

TEST_CASE("a sum goes with the handshakes, in messages of up to 60 KiB") {
  const auto messages_of = [](std::size_t bytes) {
    Cluster cluster(Network{}, {1, 1}, quiet());
    const auto outcomes = cluster.run([&](Communicator& comm) {
      std::vector<float> values = test::values_of(comm.rank(), bytes / sizeof(float));
      comm.allreduce(view(values.data(), {static_cast<std::int64_t>(values.size())}));
    });
    CHECK(test::all_returned(outcomes));
    return cluster.wires().traffic().messages;
  };
  const std::uint64_t before = messages_of(4);  // with those of the beginning and the end
  CHECK(messages_of(std::size_t{32} << 10) == before);
  CHECK(messages_of(std::size_t{64} << 10) == before + 2);  // one more from each node
  CHECK(messages_of(std::size_t{65} << 10) > before + 2);   // in pieces, after the handshakes
}

namespace {

std::size_t allocated_bytes() {
  const struct mallinfo2 memory = mallinfo2();
  return memory.uordblks + memory.hblkhd;
}

/// Returns the bytes of memory that this process has, arenas included.
double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double all = 0;
  double resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

/// The bytes that each rank of a job has allocated besides its arena.
struct Allocated {
  double once_created = 0;
  double after_calls = 0;
};

/// Runs a job with small buffers: buffers for data are as large as calls that travel with the
/// handshakes.
Allocated allocated_per_rank(int nodes, int per_node) {
  Settings settings = quiet();
  settings.tuning = "static";
  settings.algorithms = "inline-shared=128,inline-private=128,halved=0,in-flight=2";
  const std::size_t before = allocated_bytes();
  std::size_t created = 0;
  std::size_t most = 0;
  Cluster cluster(pure_latency(), nodes_of(nodes, per_node), settings);
  const auto outcomes = cluster.run([&](Communicator& comm) {
    if (comm.rank() == 0) created = allocated_bytes();
    float value = 1;
    for (int call = 0; call < 2; ++call) comm.allreduce(view(&value, {1}));
    most = std::max(most, allocated_bytes());
  });
  CHECK(test::all_returned(outcomes));
  const auto ranks = static_cast<double>(nodes * per_node);
  return {static_cast<double>(created - before) / ranks,
          static_cast<double>(most - before) / ranks};
}

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // they have their own allocator
TEST_CASE("what a rank allocates does not grow with the number of ranks or of nodes") {
  for (const int per_node : {1, 16}) {
    constexpr int kMoreNodes = 960;
    const int few_nodes = 64 / per_node;
    const Allocated few = allocated_per_rank(few_nodes, per_node);
    const Allocated many = allocated_per_rank(few_nodes + kMoreNodes / per_node, per_node);
    MESSAGE(few.once_created, " and ", many.once_created, " bytes once created, ", few.after_calls,
            " and ", many.after_calls, " after calls");
    CHECK(few.once_created > 0);
    // Less than a byte for each rank, where a table would be four at least.
    CHECK(many.once_created < few.once_created + kMoreNodes);
    // The simulator has a queue or two for each node that a node has heard of, one in each round.
    constexpr double kOfRound = 3000;
    CHECK(many.after_calls < few.after_calls + 4 * kOfRound);
  }
}

TEST_CASE("a ring for many nodes' pieces takes memory where it is used") {
  constexpr int kNodes = 128;  // 6 slots of 32 KiB for each node: 24 MiB
  Cluster cluster(pure_latency(), nodes_of(kNodes, 1), quiet());
  const double before = resident_bytes();
  double most = 0;
  const auto outcomes = cluster.run([&](Communicator& comm) {
    Tensor data = Tensor::zeros({std::int64_t{16} << 10});
    for (int call = 0; call < 2; ++call) comm.allreduce(data);
    most = std::max(most, resident_bytes());
  });
  CHECK(test::all_returned(outcomes));
  CHECK(most - before < kNodes * 2e6);
}
#endif

TEST_CASE("a long message takes its port for its bytes, and waits for its receiver") {
  Network network = pure_latency();
  network.port_rate = 1e6;
  network.eager_bytes = 1000;
  constexpr std::size_t kBytes = 1'000'000;  // a second of a port
  for (const std::size_t bytes : {std::size_t{1000}, kBytes}) {
    simulated::Simulation simulation(network, nodes_of(2, 1));
    simulated::Wires wires(simulation);
    std::vector<std::byte> data(bytes);
    Time received = 0;
    simulation.run([&](int rank) {
      const auto transport = wires.transport_of(rank);
      const auto request = rank == 0 ? transport->send(1, 1, data) : transport->receive(0, 1, data);
      while (!transport->done(request)) simulation.pace(rank).wait();
      if (rank == 1) received = simulation.now();
    });
    const Time latencies = bytes > network.eager_bytes ? 3 : 1;
    const auto moving = static_cast<Time>(bytes) * (kSecond / 1'000'000);
    CHECK(received == latencies * (kSecond / 1000) + moving);
    CHECK(wires.traffic().messages == 1);
    CHECK(wires.traffic().most_bytes_of_node == bytes);
  }
}

TEST_CASE("a simulation without a deadline is refused") {
  Settings settings = quiet();
  settings.timeout = std::chrono::milliseconds(0);
  try {
    Cluster cluster(Network{}, nodes_of(2, 1), settings);
    FAIL("not refused");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    CHECK(std::string(error.what()).find("a simulation needs one") != std::string::npos);
  }
}

TEST_CASE("a message that is longer than its buffer is an error") {
  simulated::Simulation simulation(pure_latency(), nodes_of(2, 1));
  simulated::Wires wires(simulation);
  const std::unique_ptr<collectives::Transport> ends[] = {wires.transport_of(0),
                                                          wires.transport_of(1)};
  std::byte data[8] = {};
  const auto body = [&](int rank) {
    auto& own = *ends[rank];
    const auto request = rank == 0 ? own.send(1, 1, data) : own.receive(0, 1, std::span(data, 4));
    while (!own.done(request)) simulation.pace(rank).wait();
  };
  CHECK_THROWS_WITH_AS(simulation.run(body), "a message is longer than its receive buffer", Error);
}
