// SPDX-License-Identifier: Apache-2.0
// NodeObserver: the state of the other ranks of a node, from their records and their processes.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "tutti/error.hpp"

#include "collectives/job/topology.hpp"
#include "collectives/wait/node_memory.hpp"
#include "collectives/wait/wait.hpp"

namespace tutti {

/// During its lifetime, print_calls() of this process includes the node.
class NodeObserver final : public collectives::Observer {
 public:
  /// `processes` has each local rank's process ID, or 0 if the process is not visible here.
  NodeObserver(const collectives::NodeMemory& memory, const collectives::Topology& topology,
               std::vector<pid_t> processes);
  ~NodeObserver() override;
  NodeObserver(const NodeObserver&) = delete;
  NodeObserver& operator=(const NodeObserver&) = delete;

  [[nodiscard]] bool is_gone(int local_rank) const override;
  [[nodiscard]] std::string describe(int local_rank) const override;

  /// Writes this rank's last calls, and the last few of the node's other ranks, to a file. Safe in
  /// a signal handler.
  void print(int file) const noexcept;

  /// Describes this rank's current call, such as "call 2, push of key a, 24 bytes: ..., waits in a
  /// send to rank 1"; empty if it is in none. Callable from any thread.
  [[nodiscard]] std::string call_under_way() const;
  /// Describes a rank of the node that waits in a call that this rank has not made, such as "rank 1
  /// (host a, pid 47) waits in call 17, push of key a, ..."; empty if none does. Callable from any
  /// thread.
  [[nodiscard]] std::string who_waits() const;
  /// Shows the node's other ranks how many threads of this rank make groups.
  void show_makers(std::uint32_t makers) const noexcept;
  /// Returns a prefix for messages: "rank 1 (host a, pid 47), after call 16, push of key a, 24
  /// bytes: done: ". Callable from any thread.
  [[nodiscard]] std::string place() const;
  [[nodiscard]] bool is_of_several() const { return topology_.size > 1; }
  /// Fails the node with this text, as an error of this rank, which reports it. Returns false if
  /// another rank has failed it already. Other nodes are not told. Callable from any thread.
  bool fail_node(ErrorCode code, const std::string& text) const;

 private:
  void print_calls(int file, int local_rank, std::size_t most) const noexcept;

  const collectives::NodeMemory& memory_;
  const collectives::Topology& topology_;
  std::vector<pid_t> processes_;
  /// By local rank; prepared, because signal handlers must not allocate.
  std::vector<std::string> hosts_;
  std::size_t place_;  ///< index among this process's observers
};

/// Returns true once this process of this host has ended, even if it is not reaped yet.
bool process_has_ended(pid_t process) noexcept;

/// Returns NodeObserver::place() of the group that an exception has ended in this process, or else
/// of the first group that still exists, such as Python's, or one in a static variable. Empty if
/// there is no group of several ranks.
std::string place_of_failure();

/// Returns NodeObserver::call_under_way() of the first group of this process that is in a call.
std::string call_under_way();

/// Returns NodeObserver::who_waits() of the first group of this process in which a rank waits.
std::string who_waits();

/// Shows the ranks that wait for this one in calls of other groups that a thread of it makes a
/// store or communicator, while this object exists.
class MakesGroup {
 public:
  MakesGroup() noexcept;
  ~MakesGroup();
  MakesGroup(const MakesGroup&) = delete;
  MakesGroup& operator=(const MakesGroup&) = delete;
};

/// Calls NodeObserver::fail_node() for every group of this process that has an observer. Returns
/// false if there are such groups, and all have failed already.
bool fail_nodes(ErrorCode code, const std::string& text);

/// Prints the records of every observer of this process to standard error. Safe in a signal
/// handler.
void print_calls() noexcept;

}  // namespace tutti
