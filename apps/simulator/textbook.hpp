// SPDX-License-Identifier: Apache-2.0
// Allreduces as MPI libraries make them, on the simulated network, for comparison with the library.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/simulated/wires.hpp"

namespace apps::simulator {

/// One rank's end of a textbook algorithm: messages, and sums at the rate of its core.
class Endpoint {
 public:
  Endpoint(tutti::simulated::Simulation& simulation, tutti::simulated::Wires& wires, int rank);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return simulation_.size(); }
  [[nodiscard]] const std::vector<int>& node_sizes() const { return simulation_.node_sizes(); }
  [[nodiscard]] int node() const { return simulation_.node_of(rank_); }
  void send(int to, std::span<const float> values);
  void receive(int from, std::span<float> values);
  /// Sends and receives at the same time, with two ranks or with one.
  void exchange(int to, std::span<const float> out, int from, std::span<float> in);
  /// Exchanges messages of no bytes, in log2 P rounds, until every rank has begun its barrier.
  void barrier();
  /// Adds `values` to `sums`.
  void add(std::span<const float> values, std::span<float> sums);

 private:
  using Request = tutti::collectives::Transport::Request;
  void wait(Request request);

  tutti::simulated::Simulation& simulation_;
  tutti::collectives::Pace& pace_;
  std::unique_ptr<tutti::collectives::Transport> transport_;
  int rank_;
};

/// Sums `values` of all ranks into `values` of each; `scratch` has room for as many. All ranks call
/// it with equal counts.
using Allreduce = void (*)(Endpoint& end, std::span<float> values, std::span<float> scratch);

struct Textbook {
  const char* name;
  Allreduce run;
};

/// recursive-doubling, rabenseifner (Thakur, Rabenseifner, Gropp: "Optimization of collective
/// communication operations in MPICH", IJHPCA 19(1), 2005), ring (Patarasuk, Yuan: "Bandwidth
/// optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009), and two-level:
/// a binomial tree in the node, Rabenseifner's algorithm among the nodes' first ranks, and back.
std::span<const Textbook> textbook_algorithms();

}  // namespace apps::simulator
