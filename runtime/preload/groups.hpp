// SPDX-License-Identifier: Apache-2.0
// The groups of a program's communicators.
//
// A communicator gets its group in the first call that the library takes of it, which all of its
// ranks make: its members share the memory of the job's group, and messages travel in a
// communicator of MPI's own. The group is an attribute, which goes with the communicator and which
// duplicates do not have. Threads may do this for several communicators at once, as MPI may.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mpi.h>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "collectives/engine/statistics_collector.hpp"
#include "runtime/job/group.hpp"
#include "runtime/mpi/transport.hpp"
#include "runtime/preload/choice.hpp"

namespace tutti::preload {

/// The group of one communicator.
struct Served {
  MPI_Comm comm = MPI_COMM_NULL;
  std::shared_ptr<Group> group;  ///< null: MPI carries out its calls
  MPI_Comm own = MPI_COMM_NULL;  ///< of the group's messages; null for MPI_COMM_WORLD's
  mpi::MpiTransport* messages = nullptr;
  int rank = 0;
  std::unique_ptr<Choice> choice;  ///< null: the library carries out what it can
  /// Null: each call is announced, so that those who are missing are named.
  std::unique_ptr<LeftToMpi> left;
  /// Held during a call of the group, where other threads of this rank may answer ranks of other
  /// nodes meanwhile; else null.
  std::unique_ptr<std::mutex> calls;
  /// A function that long waits in this group call, see Waiter::set_other_groups(); empty if nobody
  /// reads what they tell.
  std::function<void(const std::string&)> tell;
};

/// The note of a thread on a communicator that it has used.
struct Seen {
  MPI_Comm comm = MPI_COMM_NULL;
  std::uint64_t changes = 0;
  const Served* served = nullptr;
};

class Groups {
 public:
  /// `world` is MPI_COMM_WORLD's. `may_choose`: the MPI's own collectives may be taken where they
  /// are faster. `may_leave`: calls that the engine has declined once are left to MPI from then on.
  /// Errors: communication.
  Groups(std::shared_ptr<Group> world, bool may_choose, bool may_leave);
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  /// Null where MPI carries out the calls of this communicator, on all of its ranks alike: one
  /// rank, two groups of ranks, ranks of other jobs. Collective in the first call for a
  /// communicator.
  [[nodiscard]] const Served* find(MPI_Comm comm) {
    Seen& seen = seen_by_thread[place_of(comm)];
    if (seen.comm == comm && seen.changes == changes().load(std::memory_order_acquire)) {
      return seen.served;
    }
    return look(comm, seen);
  }

  /// True if ranks of other nodes may ask what this one does.
  [[nodiscard]] bool has_askers() const;
  /// Tells those that have asked on a communicator that no thread of this rank is in a call of, and
  /// not on `waiting`, which answers itself. Local.
  void answer_others(const Served* waiting, const std::string& doing);

  /// Before MPI_Finalize: groups end, and say what they have to report. Local.
  void end();

 private:
  static constexpr std::size_t kSeen = 8;
  inline static thread_local std::array<Seen, kSeen> seen_by_thread;

  static std::size_t place_of(MPI_Comm comm) noexcept {
    const std::uint64_t number = std::hash<MPI_Comm>()(comm);
    return static_cast<std::size_t>((number * 0x9E3779B97F4A7C15U) >> 61);
  }
  /// Grows with each communicator that is freed: another may get its handle. It is there for as
  /// long as MPI may delete attributes.
  static std::atomic<std::uint64_t>& changes() noexcept;
  static int forget(MPI_Comm comm, int key, void* value, void* groups);

  const Served* look(MPI_Comm comm, Seen& seen);
  std::unique_ptr<Served> serve(MPI_Comm comm);
  void await_first_call(MPI_Comm comm, const std::vector<int>& members);
  void make_group(Served& served, const std::vector<int>& members);
  [[nodiscard]] std::vector<int> members_of(MPI_Comm comm) const;
  void count(const Served& served);
  void prepare(Served& served) const;
  void connect(Served& served);

  std::shared_ptr<Group> world_;
  bool may_choose_;
  bool may_leave_;
  int key_ = MPI_KEYVAL_INVALID;
  std::mutex mutex_;
  std::set<Served*> all_;     ///< whose communicators have not been freed
  bool has_threads_ = false;  ///< several may be in MPI at once
  /// The cost of calls on communicators other than MPI_COMM_WORLD, by the communicator's name, if
  /// reports ask for it.
  std::map<std::string, collectives::CallTotals> costs_;
};

}  // namespace tutti::preload
