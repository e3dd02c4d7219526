// SPDX-License-Identifier: Apache-2.0
// The ranks of a job as one of them sees them: memory, messages, and the engine on top.
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

/// Numbers the groups of a job's ranks, so that their messages do not mix. All groups that come
/// from one share it.
struct GroupNumbers {
  std::atomic<int> next{1};
  std::atomic<bool> is_drawing{false};  ///< a thread of this process is making a group
};

/// What a group is made of. Built by runtime/mpi (processes) and runtime/local (one process), and
/// by parts_for() for some ranks of a group.
struct GroupParts {
  collectives::Topology topology;
  int local_rank_in_job = -1;    ///< of a rank in a group of some ranks; else -1
  std::vector<pid_t> processes;  ///< process numbers in the node; 0 if not visible here
  Settings settings;
  collectives::Tuning tuning;                            ///< from choose_tuning()
  std::shared_ptr<Arena> arena;                          ///< this rank's arena
  std::shared_ptr<Scratch> scratch;                      ///< in it, the group's own
  std::shared_ptr<const std::vector<Mapping>> mappings;  ///< arenas of peers in other processes
  std::vector<std::shared_ptr<Arena>> peers;             ///< arenas of peers in this process
  KnownPaths known;                                      ///< from a file of TUTTI_TUNING
  std::unique_ptr<collectives::PeerReader> reader;       ///< null if peers' memory cannot be read
  std::string why_unreadable;                            ///< why reader is null, with the remedy
  std::string why_not_async;  ///< why no thread but the program's may call MPI; empty if one may
  std::vector<collectives::Peer> node;                ///< where the node's ranks are mapped here
  std::unique_ptr<collectives::Transport> transport;  ///< null without MPI on one node
  collectives::Pace* pace = nullptr;                  ///< null but in a simulation
  /// Processors that the thread that makes the first group may run on.
  std::shared_ptr<const collectives::ProcessorMask> processors =
      std::make_shared<const collectives::ProcessorMask>();
  ReportTargets reports;
  std::shared_ptr<GroupNumbers> numbers = std::make_shared<GroupNumbers>();
};

class Group {
 public:
  /// Local. All ranks of the node must have their control block and must have told the others where
  /// it is before any rank makes a collective call.
  explicit Group(GroupParts parts);

  /// Local, never collective: tells the others that this rank makes no more calls.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// For whoever makes a call now: returns when no asynchronous call is under way. The thread that
  /// carries out asynchronous calls does not wait.
  /// Errors  invalid_argument: this process was forked by the one that made the group.
  [[nodiscard]] collectives::Engine& engine() {
    require_own_process();
    await_async();
    return *engine_;
  }
  /// Asks all ranks to stop. Waits for nothing, whatever is under way.
  void request_stop() noexcept { engine_->request_stop(); }
  void await_async() {
    require_own_process();
    if (!has_engine()) async_->await_all();
  }
  [[nodiscard]] const collectives::Topology& topology() const { return engine_->topology(); }
  /// This rank's local rank in the job that the group comes from.
  [[nodiscard]] int local_rank_in_job() const {
    return parts_.local_rank_in_job >= 0 ? parts_.local_rank_in_job : topology().local_rank;
  }
  [[nodiscard]] const Settings& settings() const { return parts_.settings; }
  [[nodiscard]] const collectives::Log& log() const { return engine_->log(); }

  [[nodiscard]] const std::shared_ptr<Arena>& arena() const { return parts_.arena; }
  /// Processors that the rank's threads may run on.
  [[nodiscard]] const std::shared_ptr<const collectives::ProcessorMask>& processors() const {
    return parts_.processors;
  }
  [[nodiscard]] GroupNumbers& numbers() const { return *parts_.numbers; }

  /// What a group of some of these ranks is made of, in the order given; this rank is one of them.
  /// It shares this group's memory; the peers' control blocks are not in it yet. Local.
  /// Errors  invalid_argument: settings that do not fit these ranks, no more numbers;
  /// out_of_memory.
  [[nodiscard]] GroupParts parts_for(const std::vector<int>& members, int number) const;

  /// What follows waits for no asynchronous call.
  void check_usable() {
    require_own_process();
    engine_->check_usable();
  }
  /// True in a process that was forked by the one that made the group, whose peers and memory are
  /// not its own.
  [[nodiscard]] bool is_forked() const { return num_forks() != forks_; }
  [[nodiscard]] bool failed() const { return engine_->failed(); }
  /// The node fails with this text, after this rank's name. Other nodes are not told. Any thread.
  void fail_node(ErrorCode code, const std::string& text) const;
  /// Ranks of this node whose processes have ended, where that can be seen. Any thread.
  [[nodiscard]] std::vector<int> ended_local_ranks() const;
  /// True if this thread may use the engine at once.
  [[nodiscard]] bool has_engine() const { return !makes_async_calls_ || async_->has_engine(); }
  /// The asynchronous calls, to add to or leave their clients.
  AsyncCalls& async_calls() { return *async_; }
  /// Statistics, when no asynchronous call is under way, with the waits for them.
  [[nodiscard]] const collectives::StatisticsCollector& statistics() {
    collectives::Engine& settled = engine();
    async_->settle();
    return settled.statistics();
  }
  /// The asynchronous calls, to make one; a small message that was left is taken first. Errors:
  /// invalid_argument if MPI does not allow them; what concerns that message.
  AsyncCalls& async();
  /// True on the thread that carries out asynchronous calls, while it does.
  [[nodiscard]] bool is_async_thread() const { return makes_async_calls_ && async_->is_driver(); }
  /// Collectives of tensors that go on while the program computes.
  AsyncReduces& async_reduces() {
    async();
    return *async_reduces_;
  }
  /// For the counts of the group's calls, which all copies of a communicator make with it.
  [[nodiscard]] CountExchange& count_exchange() { return count_exchange_; }
  /// Empty if the node's ranks can read each other's ordinary memory, or if there is one.
  [[nodiscard]] const std::string& why_unreadable() const { return parts_.why_unreadable; }

  /// TensorView::copy_from, between any devices, by this rank's threads or a GPU, which hears of
  /// failures while it waits for a GPU. `together` is the size of all targets that are written with
  /// this one: what does not stay in the caches goes past them. Local. Errors: timeout,
  /// communication (failed).
  void copy(const TensorView& target, const ConstTensorView& source, std::size_t together = 0);

  /// The sum of values in the host's memory, in the canonical order, by this rank's threads.
  /// `total` says how many elements each has. Local.
  void sum(std::span<const std::byte* const> values, const TensorView& total);

  /// A tensor in this rank's arena; it keeps the arena. Zero. Errors: out_of_memory.
  Tensor allocate(Shape shape, DType dtype);

 private:
  void require_own_process() const {
    if (is_forked()) throw_forked(topology().rank);
  }
  void leak();
  void copy_on_host(const TensorView& target, const ConstTensorView& source, std::size_t together);
  void leave();
  void adopt_known_paths();
  void warn_of_unreadable() const;

  unsigned forks_ = num_forks();
  GroupParts parts_;
  std::unique_ptr<collectives::Engine> engine_;
  bool makes_async_calls_ = false;  ///< has made one
  std::unique_ptr<AsyncCalls> async_;
  std::unique_ptr<AsyncReduces> async_reduces_;
  CountExchange count_exchange_;
  std::unique_ptr<NodeObserver> observer_;
  std::unique_ptr<Reports> reports_;
};

/// What the layout, the settings and this machine's caches choose. Local.
/// Errors  invalid_argument: settings.algorithms does not fit the layout.
collectives::Tuning choose_tuning(const collectives::Topology& topology, const Settings& settings);

}  // namespace tutti
