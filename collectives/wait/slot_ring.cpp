// SPDX-License-Identifier: Apache-2.0
#include "collectives/wait/slot_ring.hpp"

#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>

namespace tutti::collectives {

namespace {

/// Makes the kernel enter existing pages in this process's tables, all of them at once. Where it
/// does not know how to (Linux before 5.14), each comes at its first use.
void map_pages(std::byte* first, std::size_t bytes) {
#ifdef MADV_POPULATE_READ
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::size_t before = reinterpret_cast<std::uintptr_t>(first) % page;
  static_cast<void>(madvise(first - before, bytes + before, MADV_POPULATE_READ));
#else
  static_cast<void>(first);
  static_cast<void>(bytes);
#endif
}

}  // namespace

void SlotRing::agree_on_length(const NodeMemory& memory) {
  std::size_t least = memory.control().ring_bytes;
  for (const Peer& peer : memory.peers) {
    least = std::min<std::size_t>(least, peer.control().ring_bytes);
  }
  set_length(least);
  if (memory.size() == 1) return;
  least = std::min(least, kMostPrepared);
  for (const Peer& peer : memory.peers) map_pages(peer.arena + peer.control().ring, least);
}

SlotRing SlotRing::swapped_behind(const SlotRing& ring, const NodeMemory& memory) {
  SlotRing swapped;
  swapped.bytes_ = kSwapped;
  swapped.first_ = ring.length();
  swapped.is_swapped_ = true;
  for (const Peer& peer : memory.peers) {
    map_pages(peer.arena + peer.control().ring + swapped.first_, kSwapped);
  }
  return swapped;
}

}  // namespace tutti::collectives
