// SPDX-License-Identifier: Apache-2.0
// A job on a simulated cluster: groups whose engines are those of every job.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tutti/communicator.hpp"
#include "tutti/error.hpp"
#include "tutti/settings.hpp"

#include "runtime/job/group.hpp"
#include "runtime/simulated/simulation.hpp"
#include "runtime/simulated/wires.hpp"

namespace tutti::simulated {

/// Ranks in nodes, and what connects them. The layout and the network decide all times; the machine
/// that simulates does not, because tuning assumes caches of a usual size.
class Cluster {
 public:
  /// `settings` are those of all ranks; there must be a deadline, and one thread for each rank.
  /// Errors: invalid_argument.
  Cluster(const Network& network, const std::vector<int>& node_sizes, const Settings& settings,
          bool data = true);

  [[nodiscard]] Simulation& simulation() { return simulation_; }
  [[nodiscard]] Wires& wires() { return wires_; }

  /// Makes a communicator for every rank, and calls body(communicator) on each. Returns what each
  /// rank threw, or nothing. Once.
  std::vector<std::optional<Error>> run(const std::function<void(Communicator&)>& body);

 private:
  std::vector<std::shared_ptr<Group>> make_groups();

  Settings settings_;
  Simulation simulation_;
  Wires wires_;
};

}  // namespace tutti::simulated
