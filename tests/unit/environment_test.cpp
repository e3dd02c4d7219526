// SPDX-License-Identifier: Apache-2.0
// What the machine may have against a job: limits, other users, another version of the library.
#include <cstring>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tutti/communicator.hpp"
#include "tutti/error.hpp"

#include "runtime/job/arena.hpp"
#include "runtime/job/memory_limits.hpp"
#include "runtime/mpi/rank_info.hpp"
#include "tests/support/scratch_folder.hpp"

using namespace tutti;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

mode_t mode_of(const std::string& path) {
  struct stat info {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  return info.st_mode & 0777;
}

std::string text_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

mpi::RankInfo rank_on(const char* host) {
  mpi::RankInfo info{};
  std::snprintf(info.host, sizeof info.host, "%s", host);
  std::snprintf(info.version, sizeof info.version, "0.1.0");
  std::snprintf(info.settings, sizeof info.settings, "TUTTI_TIMEOUT=300\nTUTTI_GRACE=30\n");
  info.control_bytes = 4096;
  return info;
}

}  // namespace

TEST_CASE("shared memory belongs to its user alone, under names that cannot be foreseen") {
  std::set<std::string> names;
  for (int i = 0; i < 3; ++i) {
    const Arena arena(Backing::dev_shm, kMiB);
    const std::string name = arena.address().name;
    CHECK(mode_of(name) == 0600);
    CHECK(names.insert(name.substr(name.rfind('-'))).second);
  }
  for (const std::string& name : names) CHECK(name.size() >= 1 + 16);
  const Arena arena(Backing::memfd, kMiB);
  CHECK(mode_of("/proc/self/fd/" + std::to_string(arena.address().file)) == 0600);
}

TEST_CASE("nothing is left in /dev/shm after an arena") {
  std::string name;
  {
    const Arena arena(Backing::dev_shm, kMiB);
    name = arena.address().name;
    CHECK(access(name.c_str(), F_OK) == 0);
  }
  CHECK(access(name.c_str(), F_OK) != 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they reserve terabytes
TEST_CASE("with ulimit -v a store takes less, and an allocation beyond it names the limit") {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{1024 * kMiB, 1024 * kMiB};
    setrlimit(RLIMIT_AS, &limit);
    Settings settings;
    const std::string text = text_of([&] {
      Communicator comm = Communicator::self(settings);
      const Tensor fits = comm.allocate({64, 1 << 18});
      const Tensor large = comm.allocate({1024, 1 << 18});
    });
    const bool right = text.find("out_of_memory") == 0 &&
                       text.find("ulimit -v") != std::string::npos &&
                       text.find("TUTTI_ARENA_BYTES") != std::string::npos;
    if (!right) static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
    _exit(right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}
#endif

TEST_CASE("ranks with other versions of the library are refused, with both versions") {
  std::vector<mpi::RankInfo> infos = {rank_on("a"), rank_on("b")};
  CHECK(text_of([&] { mpi::require_equal_ranks(infos, 1); }) == "no error");
  std::snprintf(infos[1].version, sizeof infos[1].version, "0.2.0");
  const std::string text = text_of([&] { mpi::require_equal_ranks(infos, 1); });
  for (const char* words : {"invalid_argument", "library version", "rank 0 (host a) has 0.1.0",
                            "rank 1 (host b) has 0.2.0", "the same program"}) {
    CHECK(text.find(words) != std::string::npos);
  }
  infos[1] = rank_on("b");
  infos[1].control_bytes = 8192;
  CHECK(text_of([&] { mpi::require_equal_ranks(infos, 0); }).find("(layout 8192)") !=
        std::string::npos);
  infos[1] = rank_on("b");
  std::snprintf(infos[1].settings, sizeof infos[1].settings, "TUTTI_TIMEOUT=5\nTUTTI_GRACE=30\n");
  CHECK(text_of([&] { mpi::require_equal_ranks(infos, 0); })
            .find("differ in their settings: rank 0 (host a) has TUTTI_TIMEOUT=300, rank 1 (host "
                  "b) has TUTTI_TIMEOUT=5; start all ranks") != std::string::npos);
  infos[1] = rank_on("b");
  infos[1].settings_digest = 7;  // as of a text that does not fit
  CHECK(text_of([&] {
          mpi::require_equal_ranks(infos, 0);
        }).find("rank 0 (host a) has a digest of 0, rank 1 (host b) has one of 7") !=
        std::string::npos);
}

namespace {

/// Files as the kernel shows them.
class Cgroups {
 public:
  explicit Cgroups(const std::string& lines) { write("groups", lines); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder_.path() / path).parent_path());
    std::ofstream(folder_.path() / path) << text;
  }
  [[nodiscard]] std::optional<std::size_t> available() const {
    return cgroup_available(folder_.path() / "groups", folder_.path());
  }

 private:
  test::ScratchFolder folder_;
};

}  // namespace

TEST_CASE("of the limits of a cgroup and of those above it the least counts") {
  Cgroups groups("0::/job/rank\n");
  CHECK_FALSE(groups.available());
  groups.write("job/rank/memory.max", "max\n");
  groups.write("job/rank/memory.current", "700\n");
  CHECK_FALSE(groups.available());
  groups.write("job/memory.max", "1000\n");
  groups.write("job/memory.current", "900\n");
  CHECK(groups.available() == 100);
  groups.write("job/rank/memory.max", "750\n");
  CHECK(groups.available() == 50);
  groups.write("memory.max", "10\n");  // as a container sees its own
  groups.write("memory.current", "20\n");
  CHECK(groups.available() == 0);
}

TEST_CASE("what a cgroup keeps of files is available, and a group without a path is none") {
  Cgroups groups("0::/job\n");
  groups.write("job/memory.max", "1000\n");
  groups.write("job/memory.current", "1000\n");
  groups.write("job/memory.stat", "anon 300\nfile 700\ninactive_file 400\nactive_file 200\n");
  CHECK(groups.available() == 600);
  groups.write("groups", "0::\n0\n\n");
  CHECK_FALSE(groups.available());
}

TEST_CASE("limits of version 1 count, too") {
  Cgroups groups("5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n");
  groups.write("memory/job/memory.limit_in_bytes", "1000\n");
  groups.write("memory/job/memory.usage_in_bytes", "950\n");
  groups.write("memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 30\n");
  groups.write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  groups.write("memory/memory.usage_in_bytes", "5000\n");
  CHECK(groups.available() == 80);
}
