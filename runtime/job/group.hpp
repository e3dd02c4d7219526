// SPDX-License-Identifier: Apache-2.0
// Group: the ranks of a job, as one of them sees them, with their memory, messages, and the engine.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tutti/settings.hpp"
#include "tutti/tensor.hpp"

#include "collectives/engine/engine.hpp"
#include "runtime/base/forks.hpp"
#include "runtime/job/arena.hpp"
#include "runtime/job/async_calls.hpp"
#include "runtime/job/async_reduces.hpp"
#include "runtime/job/count_exchange.hpp"
#include "runtime/job/node_observer.hpp"
#include "runtime/job/scratch.hpp"
#include "runtime/job/tuning_file.hpp"
#include "runtime/observe/reports.hpp"

namespace tutti {

/// The numbers of the groups of a job's ranks, which keep their messages apart. Shared by all
/// groups that derive from the same one.
struct GroupNumbers {
  std::atomic<int> next{1};
  std::atomic<bool> is_drawing{false};  ///< a thread of this process is making a group
};

/// The parts of a group. Built by runtime/mpi (processes), by runtime/local (one process), and by
/// parts_for() for a group of some of a group's ranks.
struct GroupParts {
  collectives::Topology topology;
  int local_rank_in_job = -1;    ///< set only in a group of some of a job's ranks
  std::vector<pid_t> processes;  ///< process IDs in the node; 0 if not visible here
  Settings settings;
  collectives::Tuning tuning;                            ///< from choose_tuning()
  std::shared_ptr<Arena> arena;                          ///< this rank's arena
  std::shared_ptr<Scratch> scratch;                      ///< the group's own memory in the arena
  std::shared_ptr<const std::vector<Mapping>> mappings;  ///< arenas of peers in other processes
  std::vector<std::shared_ptr<Arena>> peers;             ///< arenas of peers in this process
  KnownPaths known;                                      ///< from the file of TUTTI_TUNING
  std::unique_ptr<collectives::PeerReader> reader;       ///< null if peers' memory cannot be read
  std::string why_unreadable;  ///< the reason if `reader` is null, with the remedy
  /// Why only the program's thread may call MPI; empty if other threads may, too.
  std::string why_not_async;
  std::vector<collectives::Peer> node;  ///< the node's ranks as mapped in this process
  std::unique_ptr<collectives::Transport> transport;  ///< null without MPI on one node
  collectives::Pace* pace = nullptr;                  ///< set only in a simulation
  /// The processors that the thread which makes the first group may run on.
  std::shared_ptr<const collectives::ProcessorMask> processors =
      std::make_shared<const collectives::ProcessorMask>();
  ReportTargets reports;
  std::shared_ptr<GroupNumbers> numbers = std::make_shared<GroupNumbers>();
};

class Group {
 public:
  /// Local. Before any rank makes a collective call, all ranks of the node must have constructed
  /// their control blocks, and told the others where these are.
  explicit Group(GroupParts parts);

  /// Local, never collective: tells the others that this rank makes no more calls.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// Returns the engine, once no asynchronous call is pending, for making a call. The thread that
  /// carries out asynchronous calls does not wait. Errors: invalid_argument in a process forked by
  /// the one that made the group.
  [[nodiscard]] collectives::Engine& engine() {
    require_own_process();
    await_async();
    return *engine_;
  }
  /// Asks all ranks to stop. Never waits, even if calls are pending.
  void request_stop() noexcept { engine_->request_stop(); }
  void await_async() {
    require_own_process();
    if (!has_engine()) async_->await_all();
  }
  [[nodiscard]] const collectives::Topology& topology() const { return engine_->topology(); }
  /// Returns this rank's local rank in the job from which the group derives.
  [[nodiscard]] int local_rank_in_job() const {
    return parts_.local_rank_in_job >= 0 ? parts_.local_rank_in_job : topology().local_rank;
  }
  [[nodiscard]] const Settings& settings() const { return parts_.settings; }
  [[nodiscard]] const collectives::Log& log() const { return engine_->log(); }

  [[nodiscard]] const std::shared_ptr<Arena>& arena() const { return parts_.arena; }
  /// Returns the processors that the rank's threads may run on.
  [[nodiscard]] const std::shared_ptr<const collectives::ProcessorMask>& processors() const {
    return parts_.processors;
  }
  [[nodiscard]] GroupNumbers& numbers() const { return *parts_.numbers; }

  /// Returns the parts for a group of some of these ranks, in the order given; this rank is one of
  /// them. They share this group's memory; the peers' control blocks and the transport are not set
  /// yet. A group whose calls have no consumers takes less memory. Local. Errors: invalid_argument
  /// for settings that do not fit these ranks; out_of_memory.
  [[nodiscard]] GroupParts parts_for(const std::vector<int>& members, int number,
                                     bool has_consumers) const;
  /// Returns the transport for these parts, whose messages travel among this group's, with tags by
  /// the number; null where none is needed. Local. Errors: invalid_argument if MPI has no more
  /// tags.
  [[nodiscard]] std::unique_ptr<collectives::Transport> transport_for(
      const std::vector<int>& members, const GroupParts& parts) const;

  /// The following functions do not wait for asynchronous calls.
  void check_usable() {
    require_own_process();
    engine_->check_usable();
  }
  /// True in a process that was forked by the one that made the group, and does not own its peers
  /// and memory.
  [[nodiscard]] bool is_forked() const { return num_forks() != forks_; }
  [[nodiscard]] bool failed() const { return engine_->failed(); }
  /// Fails the node with this text, which follows this rank's name. Other nodes are not told.
  /// Callable from any thread.
  void fail_node(ErrorCode code, const std::string& text) const;
  /// Returns the ranks of this node whose processes are known to have ended. Callable from any
  /// thread.
  [[nodiscard]] std::vector<int> ended_local_ranks() const;
  /// True if this thread may use the engine at once.
  [[nodiscard]] bool has_engine() const { return !makes_async_calls_ || async_->has_engine(); }
  /// Returns the asynchronous calls, for adding or removing clients.
  AsyncCalls& async_calls() { return *async_; }
  /// Returns the statistics, once no asynchronous call is pending, including the waits for these.
  [[nodiscard]] const collectives::StatisticsCollector& statistics() {
    collectives::Engine& settled = engine();
    async_->settle();
    return settled.statistics();
  }
  /// Returns the asynchronous calls, for making one, after a small message that was left has been
  /// received. Errors: invalid_argument if MPI does not allow such calls; errors of that message.
  AsyncCalls& async();
  /// True on the thread that carries out asynchronous calls, while it does so.
  [[nodiscard]] bool is_async_thread() const { return makes_async_calls_ && async_->is_driver(); }
  /// Returns the collectives of tensors in the background.
  AsyncReduces& async_reduces() {
    async();
    return *async_reduces_;
  }
  /// Returns the exchange of counts, which all copies of a communicator share.
  [[nodiscard]] CountExchange& count_exchange() { return count_exchange_; }
  /// Returns why the ranks of the node cannot read each other's ordinary memory; empty if they can,
  /// or if there is only one.
  [[nodiscard]] const std::string& why_unreadable() const { return parts_.why_unreadable; }

  /// Copies like TensorView::copy_from(), between any devices, by this rank's threads or by a GPU;
  /// failures are noticed while it waits for a GPU. `together` is the total size of all targets
  /// that are written with this one: data that does not fit into the caches is written past them.
  /// Local. Errors: timeout, communication (failed).
  void copy(const TensorView& target, const ConstTensorView& source, std::size_t together = 0);

  /// Sums values in host memory, in the canonical order, by this rank's threads. Each has as many
  /// elements as `total`. Local.
  void sum(std::span<const std::byte* const> values, const TensorView& total);

  /// Returns a zeroed tensor in this rank's arena, which it keeps alive. Errors: out_of_memory.
  Tensor allocate(Shape shape, DType dtype);

 private:
  void require_own_process() const {
    if (is_forked()) throw_forked(topology().rank);
  }
  void leak();
  void copy_on_host(const TensorView& target, const ConstTensorView& source, std::size_t together);
  void leave();
  void adopt_known_paths();
  void warn_of_closed_paths() const;

  unsigned forks_ = num_forks();
  GroupParts parts_;
  std::unique_ptr<collectives::Engine> engine_;
  bool makes_async_calls_ = false;  ///< has made an asynchronous call
  std::unique_ptr<AsyncCalls> async_;
  std::unique_ptr<AsyncReduces> async_reduces_;
  CountExchange count_exchange_;
  std::unique_ptr<NodeObserver> observer_;
  std::unique_ptr<Reports> reports_;
};

/// Returns the choices for a layout, the settings and this machine's caches. Local. Errors:
/// invalid_argument if settings.algorithms does not fit the layout.
collectives::Tuning choose_tuning(const collectives::Topology& topology, const Settings& settings);

}  // namespace tutti
