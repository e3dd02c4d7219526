// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/kept_comms.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "collectives/wait/transport.hpp"
#include "runtime/mpi/session.hpp"
#include "runtime/mpi/transport.hpp"

namespace tutti::mpi {

namespace {

constexpr std::size_t kMostKept = 64;  // communicators; those of further groups are not kept

/// The message of a rank: for each communicator the complement of its next number, or kInUse; then
/// the complement of the number of communicators. So the minimum over all ranks has the largest
/// numbers.
using Offers = std::array<std::uint64_t, kMostKept + 1>;
constexpr std::uint64_t kInUse = 0;

/// A communicator that is kept. All ranks keep the same ones in the same order.
struct Kept {
  Comm comm;
  int next = 0;  ///< number of the next group
  bool is_free = false;
};

/// The communicators of this process. Never destroyed, because groups may outlive static objects.
class KeptComms {
 public:
  /// Returns what is free, which counts as in use until it is given back.
  Offers offer(int most_groups) {
    const std::lock_guard lock(mutex_);
    Offers offers{};
    for (std::size_t i = 0; i < kMostKept; ++i) {
      Kept& kept = kept_[i];
      if (!kept.is_free || kept.next >= most_groups) continue;
      kept.is_free = false;
      offers[i] = ~static_cast<std::uint64_t>(kept.next);
    }
    offers.back() = ~static_cast<std::uint64_t>(count_);
    return offers;
  }
  void give_back(std::size_t index, int next) {
    const std::lock_guard lock(mutex_);
    kept_[index].next = next;
    kept_[index].is_free = true;
  }
  Comm comm(std::size_t index) {
    const std::lock_guard lock(mutex_);
    return kept_[index].comm;
  }
  /// Returns those of groups that have not ended.
  std::vector<Comm> in_use() {
    const std::lock_guard lock(mutex_);
    std::vector<Comm> comms;
    for (std::size_t i = 0; i < std::min(count_, kMostKept); ++i) {
      if (!kept_[i].is_free) comms.push_back(kept_[i].comm);
    }
    return comms;
  }
  /// Returns those of all groups, and those that are kept until the end.
  std::vector<Comm> all() {
    const std::lock_guard lock(mutex_);
    std::vector<Comm> comms;
    for (std::size_t i = 0; i < std::min(count_, kMostKept); ++i) comms.push_back(kept_[i].comm);
    comms.insert(comms.end(), until_end_.begin(), until_end_.end());
    return comms;
  }
  void keep_until_end(const Comm& comm) {
    const std::lock_guard lock(mutex_);
    until_end_.push_back(comm);
  }
  void add(std::size_t index, const Comm& comm) {
    const std::lock_guard lock(mutex_);
    count_ = std::max(count_, index + 1);
    if (index < kMostKept) kept_[index].comm = comm;
  }

 private:
  std::mutex mutex_;  ///< what follows
  std::array<Kept, kMostKept> kept_{};
  std::size_t count_ = 0;  ///< number of those that were made, kept or not
  std::vector<Comm> until_end_;
};

KeptComms& kept_comms() {
  static auto* const all = new KeptComms;
  return *all;
}

/// Gives the communicator back at its end.
class Use {
 public:
  Use(std::size_t index, int number) : index_(index) { numbers.next = number + 1; }
  ~Use() {
    if (index_ < kMostKept) kept_comms().give_back(index_, numbers.next.load());
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  GroupNumbers numbers;

 private:
  std::size_t index_;
};

CommOfGroup in_use(std::size_t index, int number) {
  const auto use = std::make_shared<Use>(index, number);
  return {number, std::shared_ptr<GroupNumbers>(use, &use->numbers)};
}

/// Receives the notices that groups which have ended did not receive. A longer message is data of a
/// group that has failed: whoever sent it may never complete it.
void drop_notices_of(const Comm& comm) {
  auto notice = std::make_unique<collectives::Notice>();
  for (bool found = true; found;) {
    int from = kAnyRank;
    int bytes = 0;
    Request request;
    const Turn turn("MPI_Iprobe");
    check(calls().probe(&from, kAnyTag, comm, &found), "MPI_Iprobe");
    if (!found) return;
    check(calls().wait_for_message(from, kAnyTag, comm, &bytes), "MPI_Probe of an old notice");
    if (static_cast<std::size_t>(bytes) > sizeof *notice) return;
    check(calls().receive(notice.get(), bytes, from, kAnyTag, comm, &request),
          "MPI_Irecv of an old notice");
    check(calls().wait(&request), "MPI_Wait of an old notice");
  }
}

}  // namespace

void keep_until_end(const Comm& comm) { kept_comms().keep_until_end(comm); }

void drop_notices() {
  for (const Comm& comm : kept_comms().all()) drop_notices_of(comm);
}

CommOfGroup take_comm_of_world(EarlyCollectives& ranks) {
  const Offers own = kept_comms().offer(MpiTransport::most_groups() / 2);
  Offers common = own;
  ranks.minima("find a communicator of theirs that is free", common);
  const auto offers = std::span(common).first(kMostKept);
  const auto free =
      std::ranges::find_if(offers, [](std::uint64_t offer) { return offer != kInUse; });
  const auto taken = static_cast<std::size_t>(free - offers.begin());
  for (std::size_t i = 0; i < kMostKept; ++i) {
    if (i != taken && own[i] != kInUse) kept_comms().give_back(i, static_cast<int>(~own[i]));
  }
  if (taken < kMostKept) {
    ranks.meet_in(kept_comms().comm(taken));
    drop_notices_of(ranks.comm());  // they would pile up; none of the new group has been sent
    return in_use(taken, static_cast<int>(~common[taken]));
  }
  ranks.leave_parent("make a communicator of their own");
  const auto index = static_cast<std::size_t>(~common.back());
  kept_comms().add(index, ranks.comm());
  return in_use(index, 0);
}

std::optional<int> who_has_sent() {
  for (const Comm& comm : kept_comms().in_use()) {
    int from = kAnyRank;
    bool found = false;
    const Turn turn("MPI_Iprobe");
    check(calls().probe(&from, kAnyTag, comm, &found), "MPI_Iprobe");
    if (found) return from;
  }
  return std::nullopt;
}

}  // namespace tutti::mpi
