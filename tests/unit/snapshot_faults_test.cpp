// SPDX-License-Identifier: Apache-2.0
// A job that is killed at any system call of its snapshots, copies to the disk and loads, once and
// again, and damage of any byte: what was reported as there is loaded, or something later, whole.
//
// Environment: TEST_SCHEDULES, how many jobs are killed; TEST_STRIDE, which bytes are changed.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tutti/tutti.hpp"

#include "tests/support/child.hpp"
#include "tests/support/scratch_folder.hpp"

using tutti::KVStore;
using tutti::Tensor;

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kElements = 3000;

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

tutti::Settings snapshot_settings(const fs::path& folder) {
  tutti::Settings settings;
  settings.log = tutti::LogLevel::quiet;
  settings.threads = 1;
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

/// Goes on from what is there, up to a step. After step s every element is s.
int train_to(const fs::path& folder, int last_step, const Report& known, int pipe) {
  KVStore kv = KVStore::create("local", snapshot_settings(folder));
  const tutti::LoadResult found = kv.load(folder / "run", {.may_be_absent = true});
  if (!found) kv.init({"a", "b"}, {Tensor::zeros({kElements}), Tensor::zeros({3})});
  const int begun = found ? std::stoi(found.metadata.at("step")) : 0;
  const bool is_late_enough = begun >= std::max(known.in_memory, known.on_disk);
  if (!is_late_enough || !found.damaged.empty() || !holds_step(kv, begun)) return kLoadedAnother;
  Report report = known;
  if (begun > report.in_memory) {  // the job before was killed when it was about to tell of it
    report.in_memory = begun;
    tell(pipe, report);
  }
  for (int step = begun + 1; step <= last_step; ++step) {
    kv.push({"a", "b"}, {Tensor::full({kElements}, step), Tensor::full({3}, step)});
    const tutti::Metadata metadata{{"step", std::to_string(step)}};
    if (step % 3 != 0) {
      tutti::snapshot(kv, folder / "run", metadata);
    } else {
      kv.save_async(folder / "run", metadata).wait();
      report.on_disk = step;
    }
    report.in_memory = step;
    tell(pipe, report);
  }
  return kDone;
}

/// Lets a job make so many system calls, and kills it then. True if it has ended before; adds what
/// it has reported.
bool run_and_kill(const fs::path& folder, int last_step, int calls, Report& known) {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  if (child == 0) {
    if (calls >= 0 && ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(8);
    if (calls >= 0) raise(SIGSTOP);
    int code = 7;
    try {
      code = train_to(folder, last_step, known, ends[1]);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    _exit(code);
  }
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
  for (Report report; ::read(ends[0], &report, sizeof report) == sizeof report;) known = report;
  close(ends[0]);
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
  std::mt19937 random(20261128);
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
