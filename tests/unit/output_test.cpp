// SPDX-License-Identifier: Apache-2.0
// Outputs that a user names: files, links, devices, pipes.
#include "runtime/base/output.hpp"

#include <csignal>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <thread>

#include "tutti/error.hpp"

#include "runtime/base/file.hpp"
#include "runtime/observe/reports.hpp"
#include "runtime/observe/trace.hpp"
#include "support/checks.hpp"
#include "support/child.hpp"
#include "support/scratch_folder.hpp"

using namespace tutti;
namespace fs = std::filesystem;

namespace {

constexpr unsigned kNull = 3;
constexpr unsigned kFull = 7;
constexpr uid_t kOther = 65534;

std::string content(const fs::path& path) { return checkpoint::read_text(path, 10000); }

/// Makes a device of the test's own, like /dev/null, so that an error destroys nothing of the
/// machine's. False without the right to make one.
bool make_device(const fs::path& path, unsigned minor) {
  return mknod(path.c_str(), S_IFCHR | 0666, makedev(1, minor)) == 0 &&
         fs::is_character_file(path) && std::ofstream(path).is_open();
}

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

std::string event_of(int number) {
  return R"({"ph":"X","name":"push","pid":1,"tid":1,"ts":)" + std::to_string(number) + "}";
}

}  // namespace

TEST_CASE("a device that is named for an output is written to and stays a device") {
  const test::ScratchFolder scratch;
  const std::string null = scratch.path() / "null";
  if (!make_device(null, kNull)) {
    MESSAGE("skipped: no right to make a device");
    return;
  }
  require_output(null);
  write_output(null, "table\n");
  observe::create_trace(null, 1);
  CHECK(observe::is_trace_of(null, 1));  // no other host makes a file of its own beside the device
  observe::append_trace(null, event_of(1));
  CHECK(fs::is_character_file(null));
  CHECK(observe::with_infix(null, "3") == null);
  CHECK(observe::of_group(null, 2) == null);
  CHECK(entries(scratch.path()) == 1);
  fs::create_symlink("null", scratch.path() / "link");
  write_output(scratch.path() / "link", "table\n");
  CHECK(fs::is_character_file(null));
  CHECK(fs::is_symlink(scratch.path() / "link"));
}

TEST_CASE("a device without room is an error that says so") {
  const test::ScratchFolder scratch;
  const std::string full = scratch.path() / "full";
  if (!make_device(full, kFull)) {
    MESSAGE("skipped: no right to make a device");
    return;
  }
  test::expect_error([&] { write_output(full, "table\n"); }, ErrorCode::io,
                     {full + ": cannot be written: No space left", "free some space"});
  test::expect_error([&] { observe::create_trace(full, 1); }, ErrorCode::io, {"No space left"});
  CHECK(fs::is_character_file(full));
}

TEST_CASE("what a link leads to is written, and the link stays") {
  const test::ScratchFolder scratch;
  const fs::path target = scratch.path() / "target";
  const fs::path link = scratch.path() / "link";
  const fs::path second = scratch.path() / "second";
  fs::create_symlink("target", link);
  fs::create_symlink(link, second);
  write_output(second, "one\n");  // the target does not exist yet
  CHECK(content(target) == "one\n");
  write_output(link, "two\n");
  CHECK(content(target) == "two\n");
  observe::create_trace(second, 7);
  CHECK(observe::is_trace_of(target, 7));
  observe::append_trace(second, event_of(1));
  CHECK(fs::is_symlink(link));
  CHECK(fs::is_symlink(second));
  CHECK(entries(scratch.path()) == 3);
  fs::create_symlink("loop", scratch.path() / "loop");
  test::expect_error([&] { write_output(scratch.path() / "loop", "x"); }, ErrorCode::io,
                     {"Too many levels of symbolic links"});
}

TEST_CASE("a link that another user has put into a shared folder is not followed") {
  const test::ScratchFolder scratch;
  const fs::path folder = scratch.path() / "shared";
  const fs::path target = scratch.path() / "target";
  const fs::path link = folder / "tutti.prom";
  fs::create_directory(folder);
  std::ofstream(target) << "mine\n";
  fs::create_symlink(target, link);
  if (lchown(link.c_str(), kOther, kOther) != 0) {
    MESSAGE("skipped: not root");
    return;
  }
  chmod(folder.c_str(), 0777);  // not sticky, so that the kernel protects nothing
  for (const auto& write :
       {+[](const std::string& path) { write_output(path, "theirs\n"); },
        +[](const std::string& path) { require_output(path); },
        +[](const std::string& path) { observe::create_trace(path, 1); },
        +[](const std::string& path) { observe::append_trace(path, event_of(1)); }}) {
    test::expect_error([&] { write(link); }, ErrorCode::io, {"a link of another user (65534)"});
  }
  CHECK(content(target) == "mine\n");
  chmod(folder.c_str(), 0755);  // only the folder's owner can have made the link
  write_output(link, "mine again\n");
  CHECK(content(target) == "mine again\n");
}

TEST_CASE("a file keeps its permissions, its other names and its owner") {
  const test::ScratchFolder scratch;
  const fs::path file = scratch.path() / "file";
  const auto status = [&] {
    struct stat found {};
    stat(file.c_str(), &found);
    return found;
  };
  std::ofstream(file) << "a longer text than the next\n";
  chmod(file.c_str(), 0640);
  const auto before = status();
  write_output(file, "one\n");
  CHECK((status().st_mode & 0777) == 0640);
  CHECK(status().st_ino != before.st_ino);  // the file was replaced: no reader has seen half of it
  fs::create_hard_link(file, scratch.path() / "other");
  write_output(file, "two\n");
  CHECK(content(scratch.path() / "other") == "two\n");
  fs::remove(scratch.path() / "other");
  if (chown(file.c_str(), kOther, kOther) == 0) {
    write_output(file, "three\n");
    CHECK(status().st_uid == kOther);
    CHECK(content(file) == "three\n");
  }
  CHECK(entries(scratch.path()) == 1);
}

TEST_CASE("a name of the longest length is written") {
  const test::ScratchFolder scratch;
  const std::string name(255, 'n');
  write_output(scratch.path() / name, "one\n");
  write_output(scratch.path() / name, "two\n");
  CHECK(content(scratch.path() / name) == "two\n");
  const std::string odd = "line\nfeed \xff";
  write_output(scratch.path() / odd, "one\n");
  CHECK(content(scratch.path() / odd) == "one\n");
}

TEST_CASE("a pipe gets the text; one that nobody reads is an error, not a wait or a signal") {
  const test::ScratchFolder scratch;
  const std::string pipe = scratch.path() / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  test::expect_error([&] { write_output(pipe, "x"); }, ErrorCode::io, {"no process reads it"});
  const FileDescriptor reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  write_output(pipe, "table\n");
  char text[16] = {};
  CHECK(read(reader.get(), text, sizeof text) == 6);
  CHECK(std::string(text) == "table\n");
}

TEST_CASE("an open file of this process gets the text at its end") {
  const test::ScratchFolder scratch;
  const fs::path file = scratch.path() / "log";
  const FileDescriptor log(open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  REQUIRE(write(log.get(), "before\n", 7) == 7);
  const std::string name = "/dev/fd/" + std::to_string(log.get());
  write_output(name, "table\n");
  REQUIRE(write(log.get(), "after\n", 6) == 6);
  CHECK(content(file) == "before\ntable\nafter\n");
}

TEST_CASE("a file beyond ulimit -f is an error that names it, and no signal") {
  const test::ScratchFolder scratch;
  const std::string file = scratch.path() / "file";
  const std::string trace = scratch.path() / "trace";
  observe::create_trace(trace, 1);
  write_output(file, "before\n");
  for (const auto& write :
       {std::function([&] { write_output(file, std::string(5000, 'x')); }),
        std::function([&] { observe::append_trace(trace, std::string(5000, 'x')); })}) {
    const test::ChildEnd end = test::in_child_with(RLIMIT_FSIZE, 4096, [&] {
      std::signal(SIGXFSZ, SIG_DFL);
      write();
      return std::string("written");
    });
    CHECK(end.signal == 0);
    CHECK(end.threw);
    INFO(end.text);
    CHECK(end.text.find("ulimit -f") != std::string::npos);
  }
  CHECK(content(file) == "before\n");
  CHECK(entries(scratch.path()) == 2);
}

TEST_CASE("the name of a report does not follow a change of the folder") {
  const test::ScratchFolder scratch;
  const test::ChildEnd end = test::in_child([&] {
    fs::current_path(scratch.path());
    const std::string name = absolute_name("a/tutti.prom");
    fs::current_path("/");
    return name;
  });
  CHECK(end.text == fs::canonical(scratch.path()) / "a/tutti.prom");
  CHECK(absolute_name("").empty());
  CHECK(absolute_name("/a/b") == "/a/b");
}
