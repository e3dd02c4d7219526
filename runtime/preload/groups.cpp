// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/groups.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "tutti/error.hpp"

#include "collectives/job/leak.hpp"
#include "collectives/job/local_error.hpp"
#include "collectives/wait/failure.hpp"
#include "runtime/base/digest.hpp"
#include "runtime/mpi/kept_comms.hpp"
#include "runtime/mpi/library.hpp"
#include "runtime/mpi/transport.hpp"
#include "runtime/preload/arguments.hpp"

namespace tutti::preload {

namespace {

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  PMPI_Error_string(code, text, &length);
  throw Error(ErrorCode::communication, std::string(call) + ": " + text);
}

/// A communicator of the same ranks with messages of their own. MPI_Comm_dup would call what copies
/// the program's attributes.
MPI_Comm same_ranks(MPI_Comm comm) {
  MPI_Group ranks = MPI_GROUP_NULL;
  check(PMPI_Comm_group(comm, &ranks), "MPI_Comm_group");
  MPI_Comm own = MPI_COMM_NULL;
  const int code = PMPI_Comm_create(comm, ranks, &own);
  PMPI_Group_free(&ranks);
  check(code, "MPI_Comm_create");
  check(PMPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return own;
}

mpi::Comm wrapped(MPI_Comm comm) { return mpi::calls().comm_at(&comm); }

/// Of all ranks of `own`. A number that is drawn here is not drawn again.
int next_number(MPI_Comm own, GroupNumbers& numbers) {
  int number = numbers.next.fetch_add(1);
  check(PMPI_Allreduce(MPI_IN_PLACE, &number, 1, MPI_INT, MPI_MAX, own), "MPI_Allreduce");
  for (int next = numbers.next.load(); next <= number;) {
    if (numbers.next.compare_exchange_weak(next, number + 1)) break;
  }
  return number;
}

}  // namespace

std::atomic<std::uint64_t>& Groups::changes() noexcept {
  static constinit std::atomic<std::uint64_t> changes{1};
  return changes;
}

Groups::Groups(std::shared_ptr<Group> world, bool may_choose, bool may_leave)
    : world_(std::move(world)), may_choose_(may_choose), may_leave_(may_leave) {
  check(PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &key_, this),
        "MPI_Comm_create_keyval");
  auto served = std::make_unique<Served>();
  served->group = world_;
  served->rank = world_->topology().rank;
  prepare(*served);
  int level = MPI_THREAD_MULTIPLE;
  check(PMPI_Query_thread(&level), "MPI_Query_thread");
  has_threads_ = level == MPI_THREAD_MULTIPLE;
  connect(*served);
  check(PMPI_Comm_set_attr(MPI_COMM_WORLD, key_, served.get()), "MPI_Comm_set_attr");
  all_.insert(served.release());
}

/// MPI calls this where a communicator is freed. After end() there are no groups any more.
int Groups::forget(MPI_Comm /*comm*/, int /*key*/, void* value, void* groups) {
  changes().fetch_add(1, std::memory_order_release);
  auto* self = static_cast<Groups*>(groups);
  std::unique_ptr<Served> served(static_cast<Served*>(value));
  {
    const std::lock_guard lock(self->mutex_);
    self->all_.erase(served.get());
    static_cast<void>(collectives::caught([&] { self->count(*served); }));
  }
  if (served->own == MPI_COMM_NULL || served->group == nullptr) return MPI_SUCCESS;
  served->messages->mute();
  const bool has_failed = served->group->failed();  // then messages may be under way
  if (!has_failed) served->messages->free_lane();
  served->group.reset();
  if (!has_failed) PMPI_Comm_free(&served->own);
  return MPI_SUCCESS;
}

void Groups::end() {
  const std::lock_guard lock(mutex_);
  changes().fetch_add(1, std::memory_order_release);
  for (const Served* served : all_) count(*served);
  collectives::StatisticsCollector& reported = world_->engine().statistics();
  for (auto& named : costs_) {
    reported.totals_for(std::hash<std::string>()(named.first),
                        [&] { return std::move(named.second); });
  }
  for (Served* served : all_) {
    if (served->own == MPI_COMM_NULL) continue;
    if (served->group != nullptr) mpi::keep_until_end(wrapped(served->own));
    served->group.reset();
  }
  for (Served* served : all_) served->group.reset();
  world_.reset();
}

namespace {

/// Empty where the program has not named it: MPIs do, by numbers.
std::string given_name(MPI_Comm comm) {
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  PMPI_Comm_get_name(comm, name, &length);
  return std::string_view(name).starts_with("MPI COMMUNICATOR") ? "" : name;
}

}  // namespace

/// Adds up what the calls on a communicator have cost, under its name, or its size where the
/// program has not named it. Ranks become those of MPI_COMM_WORLD.
void Groups::count(const Served& served) {
  if (served.group == nullptr || served.group == world_) return;
  const Settings& settings = served.group->settings();
  if (settings.statistics.empty() && settings.prometheus.empty()) return;
  constexpr std::size_t kMostNames = 1000;  // a program may make and name communicators for ever
  const std::vector<int> members = members_of(served.comm);
  std::string where = given_name(served.comm);
  if (where.empty() || costs_.size() > kMostNames) {
    where = "communicators of " + std::to_string(members.size()) + " ranks";
  }
  for (const auto& totals : served.group->engine().statistics().all()) {
    const std::string name = totals->call + " on " + where;
    collectives::CallTotals& sum = costs_.try_emplace(name).first->second;
    sum.call = name;
    sum.calls += totals->calls;
    sum.bytes += totals->bytes;
    sum.ticks += totals->ticks;
    sum.waited_ticks += totals->waited_ticks;
    for (const auto& [rank, late] : totals->late) {
      collectives::Lateness& all = sum.late[members[static_cast<std::size_t>(rank)]];
      all.calls += late.calls;
      all.waited_ticks += late.waited_ticks;
    }
  }
}

const Served* Groups::look(MPI_Comm comm, Seen& seen) {
  const std::uint64_t now = changes().load(std::memory_order_acquire);
  void* value = nullptr;
  int is_there = 0;
  if (PMPI_Comm_get_attr(comm, key_, &value, &is_there) != MPI_SUCCESS) return nullptr;
  auto* served = static_cast<Served*>(value);
  if (is_there == 0) {
    std::unique_ptr<Served> made = serve(comm);
    made->comm = comm;
    check(PMPI_Comm_set_attr(comm, key_, made.get()), "MPI_Comm_set_attr");
    served = made.release();
    const std::lock_guard lock(mutex_);
    all_.insert(served);
  }
  seen = {comm, now, served->group == nullptr ? nullptr : served};
  return seen.served;
}

void Groups::prepare(Served& served) const {
  if (may_choose_) served.choice = std::make_unique<Choice>();
  if (may_leave_) served.left = std::make_unique<LeftToMpi>();
}

/// Nobody asks where no call has a deadline.
bool Groups::has_askers() const {
  return world_->settings().timeout.count() != 0 && world_->topology().num_nodes() > 1;
}

/// Long waits in this group tell the other groups what this rank does.
void Groups::connect(Served& served) {
  if (!has_askers()) return;
  if (has_threads_) served.calls = std::make_unique<std::mutex>();
  served.tell = [this, &served](const std::string& doing) { answer_others(&served, doing); };
  served.group->engine().waiter().set_other_groups(&served.tell);
}

/// Ranks of other nodes that wait for this one on other communicators than the one that it waits in
/// learn what it does. An error of these communicators shows in their own next call.
void Groups::answer_others(const Served* waiting, const std::string& doing) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (const Served* served : all_) {
    if (served == waiting || served->group == nullptr) continue;
    std::unique_lock<std::mutex> between_calls;
    if (served->calls != nullptr) {
      between_calls = std::unique_lock(*served->calls, std::try_to_lock);
      if (!between_calls.owns_lock()) continue;  // another thread answers there
    }
    static_cast<void>(
        collectives::caught([&] { served->group->engine().waiter().answer_elsewhere(doing); }));
  }
}

/// Its ranks as they are numbered in MPI_COMM_WORLD; empty if they are not all of it, of which each
/// rank of the communicator knows.
std::vector<int> Groups::members_of(MPI_Comm comm) const {
  int is_between = 0;
  check(PMPI_Comm_test_inter(comm, &is_between), "MPI_Comm_test_inter");
  int size = 0;
  check(PMPI_Comm_size(comm, &size), "MPI_Comm_size");
  if (is_between != 0 || size == 1) return {};
  std::vector<int> ranks(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) ranks[static_cast<std::size_t>(rank)] = rank;
  std::vector<int> members(ranks.size());
  MPI_Group own = MPI_GROUP_NULL;
  MPI_Group all = MPI_GROUP_NULL;
  check(PMPI_Comm_group(comm, &own), "MPI_Comm_group");
  check(PMPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
  const int code = PMPI_Group_translate_ranks(own, size, ranks.data(), all, members.data());
  PMPI_Group_free(&own);
  PMPI_Group_free(&all);
  check(code, "MPI_Group_translate_ranks");
  if (std::ranges::find(members, MPI_UNDEFINED) != members.end()) return {};
  return members;
}

std::unique_ptr<Served> Groups::serve(MPI_Comm comm) {
  auto served = std::make_unique<Served>();
  const std::vector<int> members = members_of(comm);
  if (members.empty()) return served;
  await_first_call(comm, members);
  served->own = same_ranks(comm);
  check(PMPI_Comm_rank(comm, &served->rank), "MPI_Comm_rank");
  prepare(*served);
  make_group(*served, members);
  if (served->group == nullptr) {
    PMPI_Comm_free(&served->own);
  } else {
    connect(*served);
  }
  return served;
}

namespace {

/// The first call on a communicator, which is equal on its ranks if they have named it alike.
std::uint64_t number_of_first_call(const std::string& name, const std::vector<int>& members) {
  Digest digest;
  digest.add(std::string_view(name));
  for (const int member : members) digest.add(static_cast<std::uint64_t>(member));
  return digest.value() | 1;  // no place of a control block, and not that of messages
}

/// Returns who is missing in the first call, and what those of this node do instead: "rank 2, which
/// did not arrive; rank 2 waits in ...". Of other nodes it is not known which of the ranks are.
/// Ranks are those of `topology`, the members'.
std::string missing_in(std::uint64_t first_call, const collectives::NodeMemory& memory,
                       const collectives::Topology& job, const collectives::Topology& topology) {
  constexpr std::size_t kMostSaid = 500;
  std::vector<int> missing;
  std::vector<int> elsewhere;
  std::string doing;
  for (int rank = 0; rank < topology.size; ++rank) {
    const int local = job.local_rank_of(topology.job_ranks[static_cast<std::size_t>(rank)]);
    if (local < 0) elsewhere.push_back(rank);
    if (local < 0 || rank == topology.rank) continue;
    const collectives::LongWaits& waits =
        memory.peers[static_cast<std::size_t>(local)].long_waits();
    if (waits.shows(first_call)) continue;
    missing.push_back(rank);
    const std::string now = waits.in_other_groups(first_call);
    if (now.empty() || doing.size() > kMostSaid) continue;
    doing += "; rank " + std::to_string(rank) + " " + now;
  }
  if (!missing.empty()) return names_of(topology, missing) + ", which did not arrive" + doing;
  if (elsewhere.empty()) return "MPI's barrier, in which all ranks are";
  return (elsewhere.size() > 1 ? "some of " : "") + names_of(topology, elsewhere) +
         ", which did not arrive";
}

/// Polls MPI until the request has completed. Returns false after the deadline, of which a
/// suspended job spends one second at most. Calls `look` twice a second.
template <class Look>
bool completes(MPI_Request& request, std::chrono::steady_clock::duration deadline, Look look) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kYield = std::chrono::milliseconds(1);
  constexpr auto kNap = std::chrono::microseconds(200);
  constexpr auto kLookEvery = std::chrono::milliseconds(500);
  Clock::duration waited{0};
  Clock::duration look_at = kLookEvery;
  for (auto last = Clock::now();;) {
    int is_done = 0;
    check(PMPI_Test(&request, &is_done, MPI_STATUS_IGNORE), "MPI_Test");
    if (is_done != 0) return true;
    const auto now = Clock::now();
    waited += std::min<Clock::duration>(now - last, std::chrono::seconds(1));
    last = now;
    if (waited >= deadline) return false;
    if (waited >= look_at) {
      look(waited);
      look_at = waited + kLookEvery;
    }
    if (waited < kYield) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

}  // namespace

/// Before MPI's own calls that make a group, which have no deadline: waits until all ranks have
/// come. A job in which they do not ends: the ranks could not agree later that there is no group.
void Groups::await_first_call(MPI_Comm comm, const std::vector<int>& members) {
  using Duration = std::chrono::steady_clock::duration;
  const auto deadline = std::chrono::duration_cast<Duration>(world_->settings().timeout);
  if (deadline == Duration::zero()) return;
  const collectives::Engine& engine = world_->engine();
  const std::string call = "the first call on " + name_of(comm);
  const std::uint64_t number = number_of_first_call(call, members);
  const collectives::LongWaits::Shown shown(engine.memory().self().long_waits(), number, call,
                                            std::chrono::steady_clock::now());
  MPI_Request all = MPI_REQUEST_NULL;
  check(PMPI_Ibarrier(comm, &all), "MPI_Ibarrier");
  const auto look = [&](Duration waited) {
    answer_others(nullptr, "waits in " + call + " for " + collectives::in_seconds(waited));
  };
  if (completes(all, deadline, look)) return;
  // All may have come, and MPI's last messages are on their way.
  if (completes(all, std::min<Duration>(deadline, std::chrono::seconds(1)), look)) return;
  const collectives::Topology topology = engine.topology().of_group(members);
  const Error error(ErrorCode::timeout,
                    name_of(topology, topology.rank) + " waited " +
                        collectives::in_seconds(deadline) + " for " +
                        missing_in(number, engine.memory(), engine.topology(), topology) +
                        "; see what they are doing, or raise TUTTI_TIMEOUT");
  end_job(error, call);  // others whose time is up, too, still see that this rank has come
}

/// Makes a group like runtime/job/subgroup.cpp, but its ranks agree by MPI in their own
/// communicator: messages of the job's group belong to one thread. None on all ranks if one cannot.
/// Collective.
void Groups::make_group(Served& served, const std::vector<int>& members) {
  constexpr std::int64_t kNone = -1;
  const int number = next_number(served.own, world_->numbers());
  std::optional<GroupParts> parts;
  std::vector<std::int64_t> offsets(members.size(), kNone);
  std::int64_t offset = kNone;
  const auto failed = collectives::caught([&] {
    constexpr bool kHasConsumers = false;
    parts = world_->parts_for(members, number, kHasConsumers);
    parts->reports.name = [&served] { return given_name(served.comm); };
    auto messages =
        std::make_unique<mpi::MpiTransport>(wrapped(served.own), parts->topology.num_nodes());
    messages->let_callers_progress();
    served.messages = messages.get();
    parts->transport = std::move(messages);
    offset = static_cast<std::int64_t>(parts->scratch->offset_of_control());
  });
  if (failed) world_->log().warn("a communicator's calls are left to MPI: " + failed->text);
  check(PMPI_Allgather(&offset, 1, MPI_INT64_T, offsets.data(), 1, MPI_INT64_T, served.own),
        "MPI_Allgather");
  if (std::ranges::find(offsets, kNone) != offsets.end()) return;
  parts->scratch->share();
  const std::vector<int> local = parts->topology.local_ranks().list();
  for (std::size_t i = 0; i < local.size(); ++i) {
    collectives::Peer& peer = parts->node[i];
    peer.block = reinterpret_cast<collectives::ControlBlock*>(
        peer.arena + offsets[static_cast<std::size_t>(local[i])]);
  }
  if (parts->tuning.exchange == collectives::Exchange::mpi && parts->topology.num_nodes() > 1) {
    parts->transport->make_lane(parts->topology.lane());
  }
  const std::shared_ptr<Scratch> scratch = parts->scratch;
  const auto unmade =
      collectives::caught([&] { served.group = std::make_shared<Group>(std::move(*parts)); });
  int is_made = unmade ? 0 : 1;
  check(PMPI_Allreduce(MPI_IN_PLACE, &is_made, 1, MPI_INT, MPI_MIN, served.own), "MPI_Allreduce");
  if (is_made != 0) return;
  if (served.group != nullptr) served.messages->mute();
  served.group.reset();
  collectives::leak_until_exit(scratch);  // peers may look at it
  if (unmade) world_->log().warn("a communicator's calls are left to MPI: " + unmade->text);
}

}  // namespace tutti::preload
