// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/arena.hpp"

#include <algorithm>
#include <cstring>
#include <doctest/doctest.h>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>
#include <vector>

#include "tutti/error.hpp"

#include "tests/support/emulated.hpp"

using namespace tutti;

namespace {
constexpr std::size_t kReserve = std::size_t{64} << 20;

bool is_zero(const std::byte* memory, std::size_t bytes) {
  return std::all_of(memory, memory + bytes, [](std::byte value) { return value == std::byte{0}; });
}
}  // namespace

TEST_CASE("allocations are aligned, zero and apart, in every backing") {
  for (const Backing backing : {Backing::memfd, Backing::dev_shm, Backing::process}) {
    Arena arena(backing, kReserve);
    std::set<std::byte*> seen;
    for (const std::size_t bytes : {1u, 0u, 127u, 128u, 129u, 100000u, 3u << 20}) {
      std::byte* memory = arena.allocate(bytes);
      CHECK(reinterpret_cast<std::uintptr_t>(memory) % Arena::kAlignment == 0);
      CHECK(is_zero(memory, bytes));
      std::memset(memory, 0xff, bytes);
      CHECK(seen.insert(memory).second);
    }
  }
}

TEST_CASE("freed memory is used again, zeroed, and grows together") {
  Arena arena(Backing::process, kReserve);
  std::byte* first = arena.allocate(1 << 20);
  std::byte* second = arena.allocate(1 << 20);
  std::byte* third = arena.allocate(1 << 20);
  std::memset(first, 1, 3 << 20);
  arena.free(first);
  arena.free(third);
  arena.free(second);
  std::byte* whole = arena.allocate(3 << 20);
  CHECK(whole == first);
  CHECK(is_zero(whole, 3 << 20));
}

TEST_CASE("a peer sees what the owner writes, also in memory allocated after it mapped") {
  for (const Backing backing : {Backing::memfd, Backing::dev_shm}) {
    Arena arena(backing, kReserve);
    const Mapping peer = Arena::map_peer(backing, arena.address(), kReserve);
    std::byte* memory = arena.allocate(8 << 20);
    memory[(8 << 20) - 1] = std::byte{42};
    CHECK(peer.data()[memory - arena.data() + (8 << 20) - 1] == std::byte{42});
  }
}

TEST_CASE("an arena in /dev/shm leaves no file behind") {
  std::string name;
  {
    const Arena arena(Backing::dev_shm, kReserve);
    name = arena.address().name;
    struct stat info {};
    CHECK(stat(name.c_str(), &info) == 0);
  }
  struct stat info {};
  CHECK(stat(name.c_str(), &info) != 0);
}

TEST_CASE("a peer's memory that cannot be opened is an error with its path") {
  ArenaAddress nowhere;
  nowhere.process = 1;
  nowhere.file = 12345;
  try {
    Arena::map_peer(Backing::memfd, nowhere, kReserve);
    FAIL("it was mapped");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::io);
    CHECK(std::string(error.what()).find("/proc/1/fd/12345") != std::string::npos);
  }
}

TEST_CASE("a file that is no peer's memory is an error, and is not looked into") {
  const int file = memfd_create("somebody's", MFD_CLOEXEC);
  ArenaAddress address;
  address.process = getpid();
  address.file = file;
  const std::string path = "/proc/" + std::to_string(address.process) + "/fd/" +
                           std::to_string(file) + " is not a peer's memory";
  try {
    Arena::map_peer(Backing::memfd, address, kReserve);
    FAIL("it was mapped");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::io);
    CHECK(std::string(error.what()) == path);
  }
  close(file);
}

TEST_CASE("more than was reserved is refused with what to raise") {
  Arena arena(Backing::process, kReserve);
  try {
    arena.allocate(kReserve);
    FAIL("it was allocated");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::out_of_memory);
    CHECK(std::string(error.what()).find("64 MiB do not fit") != std::string::npos);
    CHECK(std::string(error.what()).find("TUTTI_ARENA_BYTES") != std::string::npos);
  }
  CHECK(arena.allocate(1024) != nullptr);
}

TEST_CASE("what was allocated before a group failed is never used again, and later memory is") {
  Arena arena(Backing::process, kReserve);
  bool has_failed = false;
  arena.add_user(&has_failed, [&] { return has_failed; });
  std::byte* const before = arena.allocate(1000);
  arena.free(before);
  CHECK(arena.allocate(1000) == before);
  has_failed = true;
  arena.free(before);
  std::byte* const after = arena.allocate(1000);
  CHECK(after != before);
  arena.free(after);
  CHECK(arena.allocate(1000) == after);
  arena.remove_user(&has_failed);
  arena.free(after);
  CHECK(arena.allocate(1000) == after);
}

TEST_CASE("a group that ends after it failed leaves its memory, too") {
  Arena arena(Backing::process, kReserve);
  bool has_failed = false;
  arena.add_user(&arena, [&] { return has_failed; });
  std::byte* const before = arena.allocate(1000);
  has_failed = true;
  arena.remove_user(&arena);
  arena.free(before);
  CHECK(arena.allocate(1000) != before);
}

TEST_CASE("what is reserved by default shrinks with the ranks of a node") {
  const std::size_t alone = Arena::default_reserve(0, 1);
  CHECK(alone >= kReserve);
  CHECK(Arena::default_reserve(0, 2) == alone);
  for (const int ranks : {3, 4, 64, 128, 500}) {
    CAPTURE(ranks);
    const std::size_t each = Arena::default_reserve(0, ranks);
    CHECK(each >= alone / static_cast<std::size_t>(ranks));
    CHECK(each / 3 <= alone / static_cast<std::size_t>(ranks) + (std::size_t{2} << 20));
    CHECK(Arena::default_reserve(kReserve, ranks) == kReserve);
  }
}

TEST_CASE("more than the machine has is refused before a page is touched" *
          doctest::skip(test::is_emulated())) {
  const std::size_t too_much = std::size_t{1} << 45;
  Arena arena(Backing::process, 2 * too_much);
  try {
    arena.allocate(too_much);
    FAIL("it was allocated");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::out_of_memory);
    CHECK(std::string(error.what()).find("are needed") != std::string::npos);
    CHECK(std::string(error.what()).find("available according to") != std::string::npos);
  }
  CHECK(arena.allocate(1024) != nullptr);
}
