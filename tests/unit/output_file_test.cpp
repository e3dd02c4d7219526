// SPDX-License-Identifier: Apache-2.0
// What the options of programs name for output: files, links, devices and pipes.

#include "apps/support/output_file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tests/support/checks.hpp"
#include "tests/support/scratch_folder.hpp"

namespace {

namespace fs = std::filesystem;

constexpr unsigned kNullDevice = 3;  // minor numbers of the kernel's memory devices
constexpr unsigned kFullDevice = 7;

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct stat status_of(const fs::path& file) {
  struct stat found {};
  stat(file.c_str(), &found);
  return found;
}

}  // namespace

TEST_CASE("a program's output that is a regular file is replaced in one step") {
  const test::ScratchFolder scratch;
  const fs::path file = scratch.path() / "results";
  apps::check_output_file(file);
  CHECK_FALSE(fs::exists(file));  // nothing is made before there is something to write
  apps::write_file(file, "one, which is longer\n");
  chmod(file.c_str(), 0640);
  const auto before = status_of(file);
  apps::check_output_file(file);
  apps::write_file(file, "two\n");
  CHECK(text_of(file) == "two\n");
  CHECK((status_of(file).st_mode & 0777) == 0640);
  CHECK(status_of(file).st_ino != before.st_ino);
  fs::create_hard_link(file, scratch.path() / "other");
  apps::write_file(file, "three\n");
  CHECK(text_of(scratch.path() / "other") == "three\n");
  CHECK(std::distance(fs::directory_iterator(scratch.path()), {}) == 2);
}

TEST_CASE("a program writes into links, pipes and devices that its options name") {
  const test::ScratchFolder scratch;
  const fs::path link = scratch.path() / "link";
  fs::create_symlink("target", link);
  for (const char* text : {"one\n", "two\n"}) {  // the target is not there yet, then it is
    apps::check_output_file(link);
    apps::write_file(link, text);
    CHECK(text_of(scratch.path() / "target") == text);
    CHECK(fs::is_symlink(link));
  }
  const fs::path pipe = scratch.path() / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  apps::write_file(pipe, "table\n");
  std::string read_back(6, ' ');
  CHECK(read(reader, read_back.data(), read_back.size()) == 6);
  CHECK(read_back == "table\n");
  close(reader);
  const fs::path null = scratch.path() / "null";
  const fs::path full = scratch.path() / "full";
  if (mknod(null.c_str(), S_IFCHR | 0666, makedev(1, kNullDevice)) != 0 ||
      mknod(full.c_str(), S_IFCHR | 0666, makedev(1, kFullDevice)) != 0 ||
      !std::ofstream(null).is_open()) {
    MESSAGE("devices are skipped: no right to make one");
    return;
  }
  apps::write_file(null, "table\n");
  CHECK(fs::is_character_file(null));
  test::expect_error([&] { apps::write_file(full, "table\n"); }, tutti::ErrorCode::io,
                     {full.string() + ": cannot be written: No space left"});
  CHECK(fs::is_character_file(full));
}
