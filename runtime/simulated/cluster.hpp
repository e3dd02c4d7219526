// SPDX-License-Identifier: Apache-2.0
// Cluster: a job on a simulated cluster, whose engines are the same as in any job.
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

/// Ranks in nodes, connected by a simulated network. All times depend only on the layout and the
/// network, not on the machine that simulates them, because tuning assumes caches of a typical
/// size.
class Cluster {
 public:
  /// `settings` apply to all ranks; they must have a deadline, and one thread per rank. Errors:
  /// invalid_argument.
  Cluster(const Network& network, const std::vector<int>& node_sizes, const Settings& settings,
          bool data = true);

  [[nodiscard]] Simulation& simulation() { return simulation_; }
  [[nodiscard]] Wires& wires() { return wires_; }

  /// Makes a communicator for every rank, and calls body(communicator) on each. Returns the error
  /// that each rank threw, or nothing. Can be called only once.
  std::vector<std::optional<Error>> run(const std::function<void(Communicator&)>& body);

 private:
  std::vector<std::shared_ptr<Group>> make_groups();

  Settings settings_;
  Simulation simulation_;
  Wires wires_;
};

}  // namespace tutti::simulated
