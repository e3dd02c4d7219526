// SPDX-License-Identifier: Apache-2.0
// What a rank can see of the other ranks of its node: their records and their processes.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "tutti/error.hpp"

#include "collectives/job/topology.hpp"
#include "collectives/wait/node_memory.hpp"
#include "collectives/wait/wait.hpp"

namespace tutti {

/// While it lives, print_calls() of this process includes the node.
class NodeObserver final : public collectives::Observer {
 public:
  /// `processes` has each local rank's process number, 0 where it cannot be looked at from here.
  NodeObserver(const collectives::NodeMemory& memory, const collectives::Topology& topology,
               std::vector<pid_t> processes);
  ~NodeObserver() override;
  NodeObserver(const NodeObserver&) = delete;
  NodeObserver& operator=(const NodeObserver&) = delete;

  [[nodiscard]] bool is_gone(int local_rank) const override;
  [[nodiscard]] std::string describe(int local_rank) const override;

  /// Writes this rank's last calls and the last few of the node's other ranks to a file. Safe in a
  /// signal handler.
  void print(int file) const noexcept;

  /// "call 2, push of key a, 24 bytes: ..., waits in a send to rank 1"; empty if this rank is in no
  /// call. Any thread.
  [[nodiscard]] std::string call_under_way() const;
  /// "rank 1 (host a, pid 47), after call 16, push of key a, 24 bytes: done: ". Any thread.
  [[nodiscard]] std::string place() const;
  [[nodiscard]] bool is_of_several() const { return topology_.size > 1; }
  /// The node fails with this text, which this rank says; false if it has failed already. Other
  /// nodes are not told. Any thread.
  bool fail_node(ErrorCode code, const std::string& text) const;

 private:
  void print_calls(int file, int local_rank, std::size_t most) const noexcept;

  const collectives::NodeMemory& memory_;
  const collectives::Topology& topology_;
  std::vector<pid_t> processes_;
  std::vector<std::string> hosts_;  ///< by local rank: a signal's handler must not make texts
  std::size_t place_;               ///< index among this process's observers
};

/// NodeObserver::place() of the group that an exception has ended in this process, else of the
/// first that still lives, as those of Python and those that a program keeps in a static variable
/// do. Empty where there is none of several ranks.
std::string place_of_failure();

/// NodeObserver::call_under_way() of the first group of this process that is in one.
std::string call_under_way();

/// NodeObserver::fail_node() of every group of this process that has an observer. False if there
/// are such groups, and all have failed already.
bool fail_nodes(ErrorCode code, const std::string& text);

/// Prints what every observer of this process sees to standard error. Safe in a signal handler.
void print_calls() noexcept;

}  // namespace tutti
