// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/groups.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "tutti/error.hpp"

#include "collectives/job/leak.hpp"
#include "collectives/job/local_error.hpp"
#include "runtime/mpi/kept_comms.hpp"
#include "runtime/mpi/library.hpp"
#include "runtime/mpi/transport.hpp"

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
  if (level != MPI_THREAD_MULTIPLE) tell_ = [this](const std::string& doing) { answer_all(doing); };
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

/// Long waits in this group tell the other groups what this rank does.
void Groups::connect(const Served& served) {
  if (tell_) served.group->engine().waiter().set_other_groups(&tell_);
}

/// Ranks of other nodes that wait for this one on other communicators learn what it does. An error
/// of these communicators shows in their own next call.
void Groups::answer_all(const std::string& doing) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (const Served* served : all_) {
    if (served->group == nullptr) continue;
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
