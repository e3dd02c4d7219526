// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/sockets/calls.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <numeric>
#include <optional>
#include <thread>
#include <tuple>
#include <unistd.h>

#include "runtime/job/node_observer.hpp"
#include "runtime/mpi/sockets/pending.hpp"

namespace tutti::mpi::sockets {

namespace {

using Clock = std::chrono::steady_clock;
using Bytes = PendingMeeting::Bytes;

enum Code { kDone = 0, kTruncated = 1, kUnreachable = 2, kNeedsMpi = 3, kEnded = 1000 };

constexpr auto kLookAtProcesses = std::chrono::milliseconds(50);
/// A rank that has ended may have sent all that was awaited of it, through one that lives.
constexpr auto kLastMessages = std::chrono::milliseconds(300);
constexpr auto kWaitNap = std::chrono::microseconds(50);

/// All of the job's state in this process: global, as an MPI's is.
struct State {
  Job job;
  std::optional<Mailbox> mailbox;
  std::map<std::uint64_t, Members> comms;
  std::uint64_t last_comm = 0;
  std::map<std::tuple<std::uint64_t, int, std::vector<int>>, std::uint64_t> groups_made;
  std::vector<std::pair<void (*)(void*) noexcept, void*>> at_finalize;
  std::atomic<bool> is_started{false};
  std::atomic<bool> is_finalized{false};
  Clock::time_point next_look{};
  std::map<int, Clock::time_point> ended_at;  ///< ranks that were seen to have ended
};

State& state() noexcept {
  alignas(State) static std::array<std::byte, sizeof(State)> place;
  static State* const all = new (place.data()) State;
  return *all;
}

Comm handle_of(std::uint64_t number) noexcept {
  Comm comm;
  std::memcpy(comm.bytes.data(), &number, sizeof number);
  return comm;
}

std::uint64_t number_of(const Comm& comm) noexcept {
  std::uint64_t number = 0;
  std::memcpy(&number, comm.bytes.data(), sizeof number);
  return number;
}

constexpr std::uint64_t kWorld = 1;

Members& members_of(const Comm& comm) { return state().comms.at(number_of(comm)); }

Comm keep(Members members) {
  State& all = state();
  all.comms.emplace(++all.last_comm, std::move(members));
  return handle_of(all.last_comm);
}

/// Contexts are equal on all ranks of a communicator, because they make the same ones of it.
std::uint64_t mixed(std::uint64_t value) {
  constexpr int kShift = 32;
  for (const std::uint64_t factor : {0xbf58476d1ce4e5b9ULL, 0x94d049bb133111ebULL}) {
    value = (value ^ value >> kShift) * factor;
  }
  return (value ^ value >> kShift) >> 1;  // the highest bit is that of steps
}

std::uint64_t next_context(Members& parent) {
  return mixed(parent.context * 0x9e3779b97f4a7c15ULL + ++parent.children);
}

Pending*& pending_of(Request* request) {
  static_assert(sizeof(void*) <= sizeof(Request));
  return *reinterpret_cast<Pending**>(request->bytes.data());
}

int keep(Request* request, std::unique_ptr<Pending> pending) {
  pending_of(request) = pending.release();
  return kDone;
}

/// Which of the ranks that it awaits cannot be reached any more: the only other one, or the first
/// whose process has ended.
int code_of_unreachable(const Pending& pending) {
  const Job& job = state().job;
  std::vector<int> others = pending.awaited();
  std::erase(others, job.rank);
  if (others.size() == 1) return kEnded + others.front();
  const auto ended = std::find_if(others.begin(), others.end(), [&](int rank) {
    const pid_t process = job.peers[static_cast<std::size_t>(rank)].process;
    return process != 0 && process_has_ended(process);
  });
  return ended == others.end() ? int{kUnreachable} : kEnded + *ended;
}

int code_of(const Pending& pending) {
  switch (pending.trouble()) {
    case Trouble::none:
      return kDone;
    case Trouble::truncated:
      return kTruncated;
    case Trouble::unreachable:
      return code_of_unreachable(pending);
  }
  return kDone;
}

Bytes bytes_at(const void* data, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  return {begin, begin + bytes};
}

std::span<std::byte> place_at(void* data, std::size_t bytes) {
  return {static_cast<std::byte*>(data), bytes};
}

Bytes joined(std::vector<Bytes>&& parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

int start_meeting(const Comm& comm, Bytes own, std::span<std::byte> answer,
                  PendingMeeting::Combine combine, Request* request) {
  return keep(request,
              std::make_unique<PendingMeeting>(*state().mailbox, members_of(comm), std::move(own),
                                               answer, std::move(combine)));
}

/// The first of these ranks that has ended, and not only now.
std::optional<int> ended_one(const std::vector<int>& ranks) {
  State& all = state();
  const auto now = Clock::now();
  if (now < all.next_look) return std::nullopt;
  all.next_look = now + kLookAtProcesses;
  std::optional<int> ended;
  for (const int rank : ranks) {
    const pid_t process = all.job.peers[static_cast<std::size_t>(rank)].process;
    if (process == 0 || rank == all.job.rank || !process_has_ended(process)) continue;
    const auto [seen, is_new] = all.ended_at.emplace(rank, now);
    if (!ended && now - seen->second > kLastMessages) ended = rank;
  }
  return ended;
}

class SocketCalls final : public Calls {
 public:
  // --- the library ---
  MpiAbi abi() const noexcept override { return MpiAbi::none; }
  std::string version() const override { return "no MPI"; }
  std::string header_version() const override { return "no MPI"; }
  std::string error_text(int code) const override {
    switch (code) {
      case kTruncated:
        return "a message is longer than expected";
      case kNeedsMpi:
        return "TUTTI_ALGORITHMS: exchange=mpi needs an MPI, which this job has not; leave it out";
      case kUnreachable:
        return "a rank has ended; see its output";
      default:
        return name_of_peer(state().job.peers, code - kEnded) +
               " has ended, which this rank waits for; it was killed or left the program";
    }
  }
  bool is_initialized() const noexcept override { return state().is_started; }
  bool is_finalized() const noexcept override { return state().is_finalized; }
  int initialize(ThreadLevel /*wanted*/) const override {
    start(std::chrono::duration<double>(0));
    return kDone;
  }
  int thread_level(ThreadLevel* level) const override {
    *level = ThreadLevel::serialized;
    return kDone;
  }
  int finalize() const override {
    auto& bodies = state().at_finalize;
    while (!bodies.empty()) {
      const auto [body, argument] = bodies.back();
      bodies.pop_back();
      body(argument);
    }
    state().is_finalized = true;
    return kDone;
  }
  /// The others see that this process has ended.
  void abort(int exit_code) const override { std::_Exit(exit_code); }
  int call_at_finalize(void (*body)(void*) noexcept, void* argument) const override {
    state().at_finalize.emplace_back(body, argument);
    return kDone;
  }

  // --- communicators ---
  Comm world() const noexcept override { return handle_of(kWorld); }
  Comm comm_at(const void* /*address*/) const noexcept override { return {}; }
  void store_comm(const Comm& /*comm*/, void* /*address*/) const noexcept override {}
  bool is_null(const Comm& comm) const noexcept override { return !comm.is_set(); }
  int is_intercommunicator(const Comm& /*comm*/, bool* result) const override {
    *result = false;
    return kDone;
  }
  int rank(const Comm& comm, int* rank) const override {
    *rank = members_of(comm).own;
    return kDone;
  }
  int size(const Comm& comm, int* size) const override {
    *size = static_cast<int>(members_of(comm).ranks.size());
    return kDone;
  }
  int duplicate(const Comm& comm, Comm* copy) const override {
    Members& parent = members_of(comm);
    *copy = keep({next_context(parent), parent.ranks, parent.own});
    return kDone;
  }
  /// A barrier, so that it ends as an MPI's does: when all have come.
  int start_duplicate(const Comm& comm, Comm* copy, Request* request) const override {
    duplicate(comm, copy);
    return start_barrier(comm, request);
  }
  int return_errors(const Comm& /*comm*/) const override { return kDone; }
  int free(Comm* comm) const override {
    state().comms.erase(number_of(*comm));
    *comm = {};
    return kDone;
  }
  int ranks_in_world(const Comm& comm, std::vector<int>* ranks) const override {
    const Members& members = members_of(comm);
    const bool is_world = members.ranks.size() == state().job.peers.size();
    *ranks = is_world && std::is_sorted(members.ranks.begin(), members.ranks.end())
                 ? std::vector<int>()
                 : members.ranks;
    return kDone;
  }
  int split_host(const Comm& comm, int /*own_rank*/, Comm* host) const override {
    return duplicate(comm, host);
  }
  int split(const Comm& comm, int /*own_rank*/, bool takes_part, Comm* part) const override {
    Members& parent = members_of(comm);
    const std::uint64_t context = next_context(parent);
    std::vector<std::byte> takes(parent.ranks.size());
    Request request;
    start_meeting(comm, {std::byte{takes_part}}, takes, joined, &request);
    if (const int code = wait(&request); code != kDone) return code;
    Members made{context, {}};
    for (std::size_t i = 0; i < takes.size(); ++i) {
      if (static_cast<int>(i) == parent.own) made.own = static_cast<int>(made.ranks.size());
      if (takes[i] != std::byte{0}) made.ranks.push_back(parent.ranks[i]);
    }
    *part = takes_part ? keep(std::move(made)) : Comm{};
    return kDone;
  }
  /// Those that make it alone know of it, so it does not count as a child.
  int create_group(const Comm& comm, const std::vector<int>& ranks, int tag,
                   Comm* group) const override {
    const Members& parent = members_of(comm);
    Members made;
    for (const int rank : ranks) made.ranks.push_back(parent.ranks[static_cast<std::size_t>(rank)]);
    const auto own = std::find(made.ranks.begin(), made.ranks.end(), state().job.rank);
    made.own = static_cast<int>(own - made.ranks.begin());
    made.context = parent.context + static_cast<std::uint64_t>(tag);
    for (const int rank : made.ranks) {
      made.context = mixed(made.context + static_cast<std::uint64_t>(rank));
    }
    made.context = mixed(made.context + ++state().groups_made[{parent.context, tag, made.ranks}]);
    *group = keep(std::move(made));
    return kDone;
  }
  int tag_limit(int* most) const override {
    *most = std::numeric_limits<int>::max();
    return kDone;
  }

  // --- nonblocking collectives ---
  int start_barrier(const Comm& comm, Request* request) const override {
    const auto nothing = [](std::vector<Bytes>&& /*all*/) { return Bytes(); };
    return start_meeting(comm, {}, {}, nothing, request);
  }
  int start_minimum(const std::uint64_t* own, std::uint64_t* least, int count, const Comm& comm,
                    Request* request) const override {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof *own;
    const auto minimum = [](std::vector<Bytes>&& all) {
      Bytes result = all.front();
      for (std::size_t at = 0; at < result.size(); at += sizeof(std::uint64_t)) {
        std::uint64_t lowest = std::numeric_limits<std::uint64_t>::max();
        for (const Bytes& one : all) {
          std::uint64_t value = 0;
          std::memcpy(&value, one.data() + at, sizeof value);
          lowest = std::min(lowest, value);
        }
        std::memcpy(result.data() + at, &lowest, sizeof lowest);
      }
      return result;
    };
    return start_meeting(comm, bytes_at(own, bytes), place_at(least, bytes), minimum, request);
  }
  int start_allgather(const void* own, int bytes, void* all, const Comm& comm,
                      Request* request) const override {
    const auto count = static_cast<std::size_t>(bytes);
    const std::size_t whole = count * members_of(comm).ranks.size();
    return start_meeting(comm, bytes_at(own, count), place_at(all, whole), joined, request);
  }
  int start_allgather_parts(std::span<const std::byte> own, void* all,
                            const std::vector<int>& bytes, const std::vector<int>& /*begins*/,
                            const Comm& comm, Request* request) const override {
    const auto whole = static_cast<std::size_t>(std::accumulate(bytes.begin(), bytes.end(), 0));
    return start_meeting(comm, {own.begin(), own.end()}, place_at(all, whole), joined, request);
  }
  int start_broadcast(void* data, int bytes, int root, const Comm& comm,
                      Request* request) const override {
    const auto count = static_cast<std::size_t>(bytes);
    const auto of_root = [root](std::vector<Bytes>&& all) {
      return std::move(all[static_cast<std::size_t>(root)]);
    };
    const bool is_root = members_of(comm).own == root;
    return start_meeting(comm, is_root ? bytes_at(data, count) : Bytes(), place_at(data, count),
                         of_root, request);
  }
  int start_allreduce(void* /*data*/, int /*count*/, DType /*dtype*/, ReduceOp /*op*/,
                      const Comm& /*comm*/, Request* /*request*/) const override {
    return kNeedsMpi;
  }

  // --- messages ---
  int send(const void* data, int bytes, int to, int tag, const Comm& comm,
           Request* request) const override {
    const Members& members = members_of(comm);
    const int peer = members.ranks[static_cast<std::size_t>(to)];
    const std::span all(static_cast<const std::byte*>(data), static_cast<std::size_t>(bytes));
    return keep(request, std::make_unique<PendingSend>(
                             state().mailbox->send(peer, {members.context, tag}, all), peer));
  }
  int receive(void* data, int bytes, int from, int tag, const Comm& comm,
              Request* request) const override {
    const Members& members = members_of(comm);
    const auto place = place_at(data, static_cast<std::size_t>(bytes));
    return keep(request, std::make_unique<PendingReceive>(state().mailbox->receive(
                             peer_of(members, from), {members.context, tag}, place)));
  }
  int probe(int* from, int tag, const Comm& comm, bool* found) const override {
    const Members& members = members_of(comm);
    state().mailbox->look();
    const auto there = state().mailbox->find(peer_of(members, *from), {members.context, tag});
    *found = there.has_value();
    if (there) *from = rank_of(members, there->from);
    return kDone;
  }
  int wait_for_message(int from, int tag, const Comm& comm, int* bytes) const override {
    const Members& members = members_of(comm);
    const int peer = peer_of(members, from);
    for (;;) {
      state().mailbox->look();
      if (const auto there = state().mailbox->find(peer, {members.context, tag})) {
        *bytes = static_cast<int>(there->bytes);
        return kDone;
      }
      if (const auto ended = ended_one({peer})) return kEnded + *ended;
      std::this_thread::sleep_for(kWaitNap);
    }
  }
  int test(Request* request, bool* done) const override {
    Pending*& pending = pending_of(request);
    *done = pending == nullptr;
    if (*done) return kDone;
    state().mailbox->look();
    *done = pending->advance(*state().mailbox);
    if (!*done) {
      const auto ended = ended_one(pending->awaited());
      return ended ? kEnded + *ended : code_of(*pending);
    }
    const int code = code_of(*pending);
    delete std::exchange(pending, nullptr);
    return code;
  }
  int wait(Request* request) const override {
    for (bool done = false;;) {
      const int code = test(request, &done);
      if (done || code != kDone) return code;
      std::this_thread::sleep_for(kWaitNap);
    }
  }
  int cancel(Request* request) const override {
    if (Pending* pending = pending_of(request)) pending->cancel(*state().mailbox);
    return kDone;
  }
  int release(Request* request) const override {
    delete std::exchange(pending_of(request), nullptr);
    return kDone;
  }

 private:
  static int peer_of(const Members& members, int rank) {
    return rank == kAnyRank ? kAnyPeer : members.ranks[static_cast<std::size_t>(rank)];
  }
  static int rank_of(const Members& members, int peer) {
    const auto found = std::find(members.ranks.begin(), members.ranks.end(), peer);
    return static_cast<int>(found - members.ranks.begin());
  }
};

}  // namespace

const Calls& calls() noexcept {
  alignas(SocketCalls) static std::array<std::byte, sizeof(SocketCalls)> place;
  static const Calls* const calls = new (place.data()) SocketCalls;
  return *calls;
}

void start(std::chrono::duration<double> timeout) {
  State& all = state();
  all.job = meet(timeout);
  all.mailbox.emplace(all.job);
  Members world{1, std::vector<int>(all.job.peers.size()), all.job.rank};
  std::iota(world.ranks.begin(), world.ranks.end(), 0);
  keep(std::move(world));
  all.is_started = true;
}

}  // namespace tutti::mpi::sockets
