// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/arena.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <set>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <vector>

#include "tutti/error.hpp"

#include "tests/support/checks.hpp"
#include "tests/support/child.hpp"
#include "tests/support/emulated.hpp"
#include "tests/support/refused_calls.hpp"
#include "tests/support/scratch_folder.hpp"

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

namespace {

/// The text of the error that the call throws in a process with this limit, which no signal may
/// end.
std::string refusal_under(__rlimit_resource resource, rlim_t limit,
                          const std::function<void()>& body) {
  const test::ChildEnd end = test::in_child_with(resource, limit, [&] {
    std::signal(SIGXFSZ, SIG_DFL);
    body();
    return std::string("no error");
  });
  CHECK(end.signal == 0);
  return end.text;
}

bool mentions(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

std::size_t files_in_dev_shm() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string own = "tutti-" + std::to_string(getpid()) + "-";
    count += entry.path().filename().string().starts_with(own) ? 1 : 0;
  }
  return count;
}

/// A number that the kernel has for this process, in KiB.
std::size_t status_kib(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return std::stoull(line.substr(name.size() + 1));
  }
  return 0;
}

}  // namespace

TEST_CASE("a limit of file sizes is an error that names it, not the end of the process") {
  for (const Backing backing : {Backing::memfd, Backing::dev_shm}) {
    const std::string text = refusal_under(RLIMIT_FSIZE, 10 << 20, [&] {
      Arena arena(backing, kReserve);
      CHECK(arena.allocate(1 << 20) != nullptr);
      arena.allocate(32 << 20);
    });
    INFO(text);
    CHECK(mentions(text, "node-shared memory: 32 MiB more are needed"));
    CHECK(mentions(text, "ulimit -f"));
  }
}

TEST_CASE("limits of addresses, data and files are errors that name them") {
  const auto make = [](Backing backing) {
    return [backing] {
      Arena arena(backing, std::size_t{4} << 30);
      arena.allocate(512 << 20);
    };
  };
  if (!test::is_sanitized()) {
    const std::string addresses = refusal_under(RLIMIT_AS, rlim_t{1} << 30, make(Backing::memfd));
    CHECK(mentions(addresses, "raise ulimit -v"));
    CHECK(mentions(addresses, "set here: ulimit -v 1048576"));
    const std::string data = refusal_under(RLIMIT_DATA, 256 << 20, make(Backing::process));
    INFO(data);
    CHECK(mentions(data, "ulimit -d 262144"));
  }
  const std::string files = refusal_under(RLIMIT_NOFILE, 3, make(Backing::memfd));
  CHECK(mentions(files, "ulimit -n 1024"));
}

TEST_CASE("limits that an arena does not need change nothing") {
  const auto works = [] {
    Arena arena(Backing::process, kReserve);
    arena.allocate(1 << 20);
    const Arena shared(Backing::memfd, kReserve);
  };
  CHECK(refusal_under(RLIMIT_MEMLOCK, 0, works) == "no error");
  CHECK(refusal_under(RLIMIT_NPROC, 0, works) == "no error");
  CHECK(refusal_under(RLIMIT_STACK, 256 << 10, works) == "no error");
  CHECK(refusal_under(RLIMIT_CORE, 0, works) == "no error");
  if (!test::is_sanitized()) CHECK(refusal_under(RLIMIT_DATA, 64 << 20, works) == "no error");
}

TEST_CASE("a process that locks what it maps locks what an arena has, not what it may get") {
  const test::ChildEnd end = test::in_child([]() -> std::string {
    if (mlockall(MCL_FUTURE) != 0) return "not allowed";
    Arena arena(Backing::process, std::size_t{1} << 30);
    arena.allocate(1 << 20);
    const std::size_t kib = status_kib("VmRSS:");
    return kib < (std::size_t{512} << 10) ? "little" : std::to_string(kib) + " KiB are there";
  });
  if (end.text == "not allowed") {
    MESSAGE("skipped: no right to lock memory");
  } else {
    CHECK(end.text == "little");
  }
}

TEST_CASE("an arena that cannot be made leaves no file in /dev/shm") {
  const std::size_t before = files_in_dev_shm();
  const test::ChildEnd end = test::in_child_with(RLIMIT_FSIZE, 4096, [&]() -> std::string {
    std::signal(SIGXFSZ, SIG_DFL);
    try {
      const Arena arena(Backing::dev_shm, kReserve);
    } catch (const Error&) {
      return std::to_string(files_in_dev_shm());
    }
    return "it was made";
  });
  CHECK(end.text == "0");
  CHECK(files_in_dev_shm() == before);
}

TEST_CASE("anonymous files need no kernel that knows all flags, and cannot be made smaller") {
  for (const int error : {0, EINVAL}) {
    test::refuse_memfd(error);
    CHECK(Arena::why_no_memfd().empty());
    const Arena arena(Backing::memfd, kReserve);
    const int file = arena.address().file;
    CHECK((fcntl(file, F_GET_SEALS) & F_SEAL_SHRINK) != 0);
    CHECK(ftruncate(file, 0) != 0);
    struct stat found {};
    fstat(file, &found);
    CHECK((found.st_mode & 0777) == 0600);
  }
  for (const int error : {EACCES, ENOSYS, EPERM}) {
    test::refuse_memfd(error);
    CHECK(Arena::why_no_memfd().starts_with("memfd_create: "));
  }
  test::refuse_memfd(0);
}

TEST_CASE("a file that is no peer's memory is not opened before its kind is known") {
  const test::ScratchFolder folder;
  const std::string pipe = folder.path() / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const int writer = open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  ArenaAddress address;
  address.process = getpid();
  address.file = writer;
  const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  REQUIRE(inotify_add_watch(watch, pipe.c_str(), IN_OPEN) >= 0);
  test::expect_error([&] { Arena::map_peer(Backing::memfd, address, kReserve); }, ErrorCode::io,
                     {"is not a peer's memory"});
  char events[1024];
  CHECK(read(watch, events, sizeof events) < 0);  // the folder was only read
  close(watch);
  close(writer);
  std::snprintf(address.name, sizeof address.name, "%s", (folder.path() / "link").c_str());
  std::filesystem::create_symlink(folder.path() / "file", folder.path() / "link");
  std::ofstream(folder.path() / "file") << std::string(sizeof(collectives::WideControlBlock), ' ');
  test::expect_error([&] { Arena::map_peer(Backing::dev_shm, address, kReserve); }, ErrorCode::io,
                     {"is not a peer's memory"});
}
