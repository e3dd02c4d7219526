// SPDX-License-Identifier: Apache-2.0
// Collectives of blocks on simulated clusters: the memory that they take.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <doctest/doctest.h>
#include <malloc.h>
#include <vector>

#include "runtime/simulated/cluster.hpp"
#include "unit/threads.hpp"

using namespace tutti;
using simulated::Cluster;
using simulated::Network;

namespace {

constexpr int kBlockNodes = 8;
constexpr std::size_t kPieceBytes = 4096;
/// The most bytes of one rank's shares under way: see Tuning::chunks_in_flight.
constexpr std::size_t kUnderWay = std::size_t{16} * kBlockNodes * kPieceBytes;

Settings in_small_pieces() {
  Settings settings;
  settings.log = LogLevel::quiet;
  settings.timeout = std::chrono::seconds(60);
  settings.tuning = "static";
  settings.piece_bytes = kPieceBytes;
  return settings;
}

std::size_t from_the_heap() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

/// The bytes that a rank takes from the heap for a reduce_scatter of so many elements to each rank.
std::size_t taken_by_sums(const std::vector<std::size_t>& counts) {
  const std::vector<int> nodes(kBlockNodes, 1);
  std::size_t total = 0;
  for (const std::size_t count : counts) total += count;
  const std::vector<float> input(total, 1);
  std::vector<std::vector<float>> outputs;
  for (const std::size_t count : counts) outputs.emplace_back(count);
  Cluster cluster(Network{}, nodes, in_small_pieces());
  std::size_t before = 0;
  std::size_t most = 0;
  const auto outcomes = cluster.run([&](Communicator& comm) {
    if (comm.rank() == 0) before = from_the_heap();
    std::vector<float>& output = outputs[static_cast<std::size_t>(comm.rank())];
    comm.reduce_scatter(view(input.data(), {static_cast<std::int64_t>(total)}),
                        view(output.data(), {static_cast<std::int64_t>(output.size())}), counts);
    most = std::max(most, from_the_heap());
  });
  CHECK(test::all_returned(outcomes));
  for (const auto& output : outputs) {
    CHECK(std::count(output.begin(), output.end(), float{kBlockNodes}) ==
          static_cast<std::ptrdiff_t>(output.size()));
  }
  return (most - before) / kBlockNodes;
}

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // they have their own allocator
TEST_CASE("partial sums of a reduce_scatter take no more memory than what is under way") {
  constexpr std::size_t kCount = kUnderWay / sizeof(float) / kBlockNodes;
  // Memory for shares that are sent, shares that are received, and results.
  constexpr std::size_t kMost = 3 * kUnderWay + kUnderWay / 4;
  CHECK(taken_by_sums(std::vector<std::size_t>(kBlockNodes, kCount)) < kMost);
  CHECK(taken_by_sums(std::vector<std::size_t>(kBlockNodes, 5 * kCount)) < kMost);
  std::vector<std::size_t> to_one(kBlockNodes, 1);
  to_one.back() = 20 * kCount;
  CHECK(taken_by_sums(to_one) < kMost);
}
#endif

namespace {

/// A network on which only the ports of hosts take time.
Network of_ports() {
  Network network;
  network.latency = 1e-6;
  network.overhead = network.receive_overhead = network.gap = network.call = 0;
  network.core_rate = network.memory_rate = network.node_rate = 1e30;
  network.eager_bytes = std::size_t{1} << 40;
  return network;
}

using Moves = void (*)(Communicator&, const TensorView& whole, const TensorView& other,
                       const TensorView& block);

/// The time of a call of 8 MiB, as a multiple of the least that the ports allow. Each rank's block
/// is an eighth of `whole` and of `other`.
double times_of_least(int per_node, Moves call) {
  constexpr std::int64_t kCount = std::int64_t{2} << 20;
  const int ranks = kBlockNodes * per_node;
  Cluster cluster(of_ports(), std::vector<int>(kBlockNodes, per_node), in_small_pieces());
  double seconds = 0;
  const auto outcomes = cluster.run([&](Communicator& comm) {
    Tensor whole = Tensor::zeros({kCount});
    Tensor other = Tensor::zeros({kCount});
    Tensor block = Tensor::zeros({kCount / ranks});
    comm.barrier();
    const auto begun = cluster.simulation().now();
    call(comm, whole, other, block);
    const auto passed = static_cast<double>(cluster.simulation().now() - begun);
    seconds = std::max(seconds, passed / static_cast<double>(simulated::kSecond));
  });
  CHECK(test::all_returned(outcomes));
  const double bytes = double{kCount} * sizeof(float) * (kBlockNodes - 1) / kBlockNodes;
  return seconds * of_ports().port_rate / bytes;
}

}  // namespace

TEST_CASE("blocks of all nodes use the links of all nodes at a time") {
  for (const int per_node : {1, 2}) {
    CAPTURE(per_node);
    const double gathers =
        times_of_least(per_node, [](Communicator& comm, const TensorView& whole, const TensorView&,
                                    const TensorView& block) { comm.allgather(block, whole); });
    CHECK(gathers < 1.3);
    const double sums = times_of_least(
        per_node, [](Communicator& comm, const TensorView& whole, const TensorView&,
                     const TensorView& block) { comm.reduce_scatter(whole, block); });
    CHECK(sums < 1.3);
    // The bytes of all ranks of a node leave it.
    const double swaps = times_of_least(
        per_node, [](Communicator& comm, const TensorView& whole, const TensorView& other,
                     const TensorView&) { comm.alltoall(whole, other); });
    CHECK(swaps < 1.3 * per_node);
  }
}
