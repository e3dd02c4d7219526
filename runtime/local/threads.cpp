// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/threads.hpp"

#include <numeric>
#include <sched.h>
#include <unistd.h>

#include "runtime/job/settings.hpp"
#include "runtime/local/mailbox.hpp"

namespace tutti {

namespace {

std::string host_name() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

std::vector<std::shared_ptr<Group>> make_thread_groups(const std::vector<int>& node_sizes,
                                                       const Settings& settings,
                                                       MessageFilter filter,
                                                       std::size_t arena_bytes) {
  require_valid(settings);
  const int size = std::accumulate(node_sizes.begin(), node_sizes.end(), 0);
  const auto office = std::make_shared<PostOffice>(size, std::move(filter));
  std::vector<GroupParts> parts(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    GroupParts& own = parts[rank];
    own.topology = collectives::Topology::consecutive(rank, node_sizes);
    own.topology.hosts.assign(static_cast<std::size_t>(size), host_name());
    own.topology.ranks_per_core = (size + usable_cores() - 1) / usable_cores();
    own.settings = settings;
    own.arena = std::make_shared<Arena>(Backing::process, arena_bytes);
    own.tuning = choose_tuning(own.topology, settings);
    allocate_slots(*own.arena, own.tuning.chunk_bytes);
    if (own.topology.num_nodes() > 1) {
      own.transport = std::make_unique<MailboxTransport>(office, rank);
    }
  }
  for (GroupParts& own : parts) {
    for (const int peer : own.topology.local_ranks()) {
      own.arenas.push_back(parts[peer].arena->data());
      if (peer != own.topology.rank) own.peers.push_back(parts[peer].arena);
    }
  }
  std::vector<std::shared_ptr<Group>> groups;
  for (GroupParts& own : parts) groups.push_back(std::make_shared<Group>(std::move(own)));
  return groups;
}

std::shared_ptr<Group> make_self_group(const Settings& settings) {
  return make_thread_groups({1}, settings, {}, Arena::default_reserve(settings.arena_bytes, 1))
      .front();
}

}  // namespace tutti
