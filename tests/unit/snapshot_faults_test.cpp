// SPDX-License-Identifier: Apache-2.0
// A job that is killed at any system call of its snapshots, copies to the disk and loads, once and
// again, and damage of any byte: what was reported as there is loaded, or something later, whole.
// The same with four ranks on two nodes, one of which ends before the others do, at any message or
// call that changes files.
//
// Environment: TEST_SCHEDULES, how many jobs are killed; TEST_SEED, at which moments; TEST_STRIDE,
// which bytes are changed.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tutti/tutti.hpp"

#include "tests/support/child.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/unit/threads.hpp"

using tutti::Communicator;
using tutti::KVStore;
using tutti::Tensor;

namespace {

std::atomic<int> steps_left{std::numeric_limits<int>::max()};
int stopped_pipe = -1;  ///< is told when a rank has stopped

/// Before a call that changes files, or a message. The thread of the last step stops there, as a
/// rank that is killed, while the others go on.
void take_step() noexcept {
  if (steps_left.fetch_sub(1) != 1) return;
  const char mark = 1;
  if (::write(stopped_pipe, &mark, 1) != 1) _exit(9);
  for (;;) pause();
}

}  // namespace

// These take the place of the C library's in this program.
extern "C" {
ssize_t pwrite(int file, const void* bytes, std::size_t count, off_t position) {
  take_step();
  return syscall(SYS_pwrite64, file, bytes, count, position);
}
int fallocate(int file, int mode, off_t position, off_t count) {
  take_step();
  return static_cast<int>(syscall(SYS_fallocate, file, mode, position, count));
}
int ftruncate(int file, off_t size) noexcept {
  take_step();
  return static_cast<int>(syscall(SYS_ftruncate, file, size));
}
int fsync(int file) {
  take_step();
  return static_cast<int>(syscall(SYS_fsync, file));
}
int mkdir(const char* path, mode_t mode) noexcept {
  take_step();
  return static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
int rename(const char* from, const char* to) noexcept {
  take_step();
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  take_step();
  return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, 0));
}
int unlinkat(int folder, const char* path, int flags) noexcept {
  take_step();
  return static_cast<int>(syscall(SYS_unlinkat, folder, path, flags));
}
}

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kElements = 3000;

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

/// Of the moments at which jobs are killed.
std::mt19937::result_type seed() {
  return static_cast<std::mt19937::result_type>(number_from("TEST_SEED", 20261128));
}

tutti::Settings snapshot_settings(const fs::path& folder) {
  tutti::Settings settings;
  settings.log = tutti::LogLevel::quiet;
  settings.threads = 1;
  settings.timeout = std::chrono::seconds(60);
  settings.snapshots = (folder / "memory").string();
  return settings;
}

bool holds_step(const KVStore& kv, int step) {
  const auto is_step = [&](float value) { return value == static_cast<float>(step); };
  return std::ranges::all_of(kv.view("a").values<float>(), is_step) &&
         std::ranges::all_of(kv.view("b").values<float>(), is_step);
}

/// The report of a job to the test: the last steps that are there for good.
struct Report {
  int in_memory = 0;
  int on_disk = 0;
};

void tell(int pipe, const Report& report) {
  if (::write(pipe, &report, sizeof report) != sizeof report) _exit(9);
}

enum Exit { kDone = 0, kLoadedAnother = 3 };

/// Goes on from what is there, up to a step. After step s every element is s on all ranks.
int train_to(Communicator& ranks, const fs::path& folder, int last_step, const Report& known,
             int pipe) {
  const bool is_first = ranks.rank() == 0;
  KVStore kv = KVStore::create(ranks);
  const tutti::LoadResult found = kv.load(folder / "run", {.may_be_absent = true});
  if (!found) kv.init({"a", "b"}, {Tensor::zeros({kElements}), Tensor::zeros({3})});
  const int begun = found ? std::stoi(found.metadata.at("step")) : 0;
  std::vector<std::int64_t> most{begun, -begun};
  ranks.allreduce(tutti::view(most.data(), {2}), tutti::ReduceOp::max);
  const bool is_alike = most[0] == begun && most[1] == -begun;
  const bool is_late_enough = begun >= std::max(known.in_memory, known.on_disk);
  const bool is_right =
      is_alike && is_late_enough && found.damaged.empty() && holds_step(kv, begun);
  if (!is_right) return kLoadedAnother;
  Report report = known;
  if (begun > report.in_memory) {  // the job before was killed when it was about to tell of it
    report.in_memory = begun;
    if (is_first) tell(pipe, report);
  }
  for (int step = begun + 1; step <= last_step; ++step) {
    const int mine = is_first ? step : 0;
    kv.push({"a", "b"}, {Tensor::full({kElements}, mine), Tensor::full({3}, mine)});
    const tutti::Metadata metadata{{"step", std::to_string(step)}};
    if (step % 3 != 0) {
      tutti::snapshot(kv, folder / "run", metadata);
    } else {
      kv.save_async(folder / "run", metadata).wait();
      report.on_disk = step;
    }
    report.in_memory = step;
    if (is_first) tell(pipe, report);
  }
  return kDone;
}

/// What a job has reported to its pipe before it ended.
void read_reports(int pipe, Report& known) {
  for (Report report; ::read(pipe, &report, sizeof report) == sizeof report;) known = report;
}

/// Runs the body in a child, which then ends with its code.
pid_t start(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  int code = 7;
  try {
    code = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  _exit(code);
}

/// Lets a job make so many system calls, and kills it then. True if it has ended before; adds what
/// it has reported.
bool run_and_kill(const fs::path& folder, int last_step, int calls, Report& known) {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = start([&] {
    if (calls >= 0 && ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return 8;
    if (calls >= 0) raise(SIGSTOP);
    Communicator self = Communicator::self(snapshot_settings(folder));
    return train_to(self, folder, last_step, known, ends[1]);
  });
  close(ends[1]);
  int status = 0;
  waitpid(child, &status, 0);
  // The calls' begins and ends are two stops each.
  for (int stop = 0; WIFSTOPPED(status) && stop < 2 * calls; ++stop) {
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    waitpid(child, &status, 0);
  }
  const bool has_ended = !WIFSTOPPED(status);
  if (!has_ended) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  } else {
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == kDone);
  }
  read_reports(ends[0], known);
  close(ends[0]);
  return has_ended;
}

constexpr int kRanks = 4;

int train_on_nodes(const fs::path& folder, int last_step, const Report& known, int pipe) {
  const auto filter = [](int, int, int) {
    take_step();
    return true;
  };
  std::array<int, kRanks> codes{};
  const auto outcomes = test::as_ranks(
      {2, 2}, snapshot_settings(folder),
      [&](Communicator& ranks) {
        codes[static_cast<std::size_t>(ranks.rank())] =
            train_to(ranks, folder, last_step, known, pipe);
      },
      filter);
  for (const auto& outcome : outcomes) {
    if (outcome) throw tutti::Error(*outcome);
  }
  return std::ranges::max(codes);
}

/// Lets a job of several ranks take so many steps; then one rank has ended, and the others do after
/// that time. True if it has ended before.
bool run_nodes_and_kill(const fs::path& folder, int last_step, int steps,
                        std::chrono::microseconds then, Report& known) {
  std::array<int, 2> ends{};
  std::array<int, 2> stopped{};
  REQUIRE(pipe(ends.data()) == 0);
  REQUIRE(pipe(stopped.data()) == 0);
  const pid_t child = start([&] {
    stopped_pipe = stopped[1];
    steps_left = steps;
    return train_on_nodes(folder, last_step, known, ends[1]);
  });
  close(ends[1]);
  close(stopped[1]);
  char mark = 0;
  const bool has_ended = ::read(stopped[0], &mark, 1) != 1;
  if (!has_ended) {
    std::this_thread::sleep_for(then);
    kill(child, SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (has_ended) REQUIRE(status == 0);
  read_reports(ends[0], known);
  close(ends[0]);
  close(stopped[0]);
  return has_ended;
}

void copy_all(const fs::path& from, const fs::path& to) {
  fs::remove_all(to);
  fs::copy(from, to, fs::copy_options::recursive);
  fs::permissions(to, fs::perms::owner_all);
}

}  // namespace

// Sanitizers and emulators trace the process themselves.
TEST_CASE("whatever call a job is killed at, the next one goes on from what was reported" *
          doctest::skip(test::is_sanitized())) {
  std::mt19937 random(seed());
  const int schedules = number_from("TEST_SCHEDULES", 60);
  for (int schedule = 0; schedule < schedules; ++schedule) {
    CAPTURE(schedule);
    const test::ScratchFolder folder("/dev/shm");
    Report known;
    const int deaths = 1 + static_cast<int>(random() % 4);
    for (int death = 0; death < deaths; ++death) {
      const int calls = 20 + static_cast<int>(random() % 600);
      CAPTURE(calls);
      if (run_and_kill(folder.path(), 8, calls, known)) break;
    }
    run_and_kill(folder.path(), 8, -1, known);  // it finds what it has to
    REQUIRE(known.in_memory == 8);
    if (schedule % 4 == 0) {  // the memory is lost
      fs::remove_all(folder.path() / "memory");
      known.in_memory = 0;
      run_and_kill(folder.path(), 8, -1, known);
      REQUIRE(known.in_memory == 8);
    }
  }
}

namespace {

void lose_memory(const fs::path& memory, std::mt19937::result_type node) {
  std::error_code error;  // the job may have ended before it made the folder
  for (fs::directory_iterator entries(memory, error); !error && entries != fs::directory_iterator();
       entries.increment(error)) {
    if (entries->path().extension() != "." + std::to_string(node)) continue;
    fs::remove_all(entries->path());
    return;
  }
}

}  // namespace

// Where memory is lost, it is that of one node, once: what it had is on the other.
TEST_CASE("whatever call one rank of two nodes ends at, all go on from what was reported" *
          doctest::skip(test::is_sanitized())) {
  std::mt19937 random(seed() + 1);
  const int schedules = number_from("TEST_SCHEDULES", 60) / 6;  // each takes longer
  constexpr int kNever = std::numeric_limits<int>::max();
  constexpr std::chrono::microseconds kAtOnce{0};
  for (int schedule = 0; schedule < schedules; ++schedule) {
    CAPTURE(schedule);
    const test::ScratchFolder folder("/dev/shm");
    Report known;
    const int deaths = 1 + static_cast<int>(random() % 4);
    for (int death = 0; death < deaths; ++death) {
      const int steps = 1 + static_cast<int>(random() % 250);  // as many as a whole job takes
      const std::chrono::microseconds then(random() % 2 * (random() % 30000));
      CAPTURE(steps);
      if (run_nodes_and_kill(folder.path(), 8, steps, then, known)) break;
      if (death == 0 && random() % 2 == 0) lose_memory(folder.path() / "memory", random() % 2);
    }
    run_nodes_and_kill(folder.path(), 8, kNever, kAtOnce, known);  // it finds what it has to
    REQUIRE(known.in_memory == 8);
  }
}

TEST_CASE("a snapshot with any byte changed is passed over, and the one before is loaded") {
  const test::ScratchFolder folder;
  {
    KVStore kv = KVStore::create("local", snapshot_settings(folder.path()));
    kv.init({"a", "b"}, {Tensor::zeros({100}), Tensor::zeros({3})});
    for (int step = 1; step <= 2; ++step) {
      kv.push({"a", "b"}, {Tensor::full({100}, step), Tensor::full({3}, step)});
      tutti::snapshot(kv, folder.path() / "run", {{"step", std::to_string(step)}});
    }
  }
  copy_all(folder.path() / "memory", folder.path() / "kept");
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path() / "memory")) {
    if (entry.path().parent_path().filename() == "generation-2") files.push_back(entry.path());
  }
  REQUIRE(files.size() == 2);
  const auto stride = static_cast<std::uintmax_t>(number_from("TEST_STRIDE", 41));
  for (const fs::path& file : files) {
    const std::uintmax_t bytes = fs::file_size(file);
    for (std::uintmax_t position = 0; position < bytes; position += stride) {
      CAPTURE(file.string());
      CAPTURE(position);
      {
        std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
        stream.seekg(static_cast<std::streamoff>(position));
        const auto byte = static_cast<char>(stream.get() ^ 16);
        stream.seekp(static_cast<std::streamoff>(position));
        stream.put(byte);
      }
      KVStore kv = KVStore::create("local", snapshot_settings(folder.path()));
      REQUIRE(kv.load(folder.path() / "run").metadata.at("step") == "1");
      REQUIRE(holds_step(kv, 1));
      copy_all(folder.path() / "kept", folder.path() / "memory");
    }
  }
}
