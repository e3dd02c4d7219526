// SPDX-License-Identifier: Apache-2.0
// Checkpoints on unusual disks: full ones, without rights, or with odd names.
#include <cerrno>
#include <doctest/doctest.h>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "tutti/tutti.hpp"

#include "runtime/base/file.hpp"
#include "runtime/checkpoint/generations.hpp"
#include "tests/support/checks.hpp"
#include "tests/support/child.hpp"
#include "tests/support/refused_calls.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/support/standard_error.hpp"

using tutti::ErrorCode;
using namespace tutti::checkpoint;
using tutti::KVStore;
using tutti::Tensor;

namespace {

constexpr uid_t kNobody = 65534;

void make_run(const fs::path& directory, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    fs::create_directories(directory / name);
    std::ofstream(directory / name / "file") << name;
  }
}

}  // namespace

TEST_CASE("an old generation that cannot be removed is told, and others are removed") {
  const test::ScratchFolder folder;
  const fs::path run = folder.path() / "run";
  fs::create_directory(run);
  make_run(run, {"generation-1", "generation-2", "generation-3", "generation-4.partial"});
  chmod(folder.path().c_str(), 0755);
  chmod((run / "generation-1").c_str(), 0555);
  chmod((run / "generation-4.partial").c_str(), 0555);
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (lchown(entry.path().c_str(), kNobody, kNobody) != 0) {
      MESSAGE("skipped: not root");
      return;
    }
  }
  const test::ChildEnd end = test::in_child([&]() -> std::string {
    if (setresuid(kNobody, kNobody, kNobody) != 0) return "cannot become another user";
    const Generations generations(run);
    std::string text;
    for (const std::string& reason : generations.remove_leftovers()) text += reason + "\n";
    text += std::to_string(generations.next()) + "\n";
    for (const std::string& reason : generations.prune(3, std::nullopt)) text += reason + "\n";
    return text;
  });
  INFO(end.text);
  CHECK_FALSE(end.threw);
  CHECK(end.text.find("cannot remove " + (run / "generation-4.partial").string()) == 0);
  CHECK(end.text.find("\n5\n") != std::string::npos);
  CHECK(end.text.find("generation-1") != std::string::npos);
  CHECK(fs::exists(run / "generation-2"));
}

TEST_CASE("a store saves where an old generation cannot be removed, and says so") {
  const test::ScratchFolder folder;
  chmod(folder.path().c_str(), 0755);
  const fs::path run = folder.path() / "run";
  fs::create_directory(run);
  if (lchown(run.c_str(), kNobody, kNobody) != 0) {
    MESSAGE("skipped: not root");
    return;
  }
  const test::ChildEnd end = test::in_child([&]() -> std::string {
    if (setresuid(kNobody, kNobody, kNobody) != 0) return "cannot become another user";
    KVStore store = KVStore::create("local");
    store.init("w", Tensor::full({4}, 1.0F));
    return test::written_by([&] {
      for (int save = 0; save < 4; ++save) {
        store.save(run);
        if (save == 0) chmod((run / "generation-1").c_str(), 0555);
      }
    });
  });
  INFO(end.text);
  CHECK_FALSE(end.threw);
  CHECK(end.text.find("saved generation 3 in " + run.string() + ", where old files remain") !=
        std::string::npos);
  CHECK(fs::exists(run / "generation-4" / "manifest.json"));
}

TEST_CASE("a store saves where the file system cannot sync folders") {
  const test::ScratchFolder folder;
  KVStore store = KVStore::create("local");
  store.init("w", Tensor::full({4}, 1.0F));
  test::refuse_fsync_of_folders(EINVAL);
  store.save(folder.path() / "run");
  test::refuse_fsync_of_folders(EIO);
  test::expect_error([&] { store.save(folder.path() / "run"); }, ErrorCode::io,
                     {"Input/output error"});
  test::refuse_fsync_of_folders(0);
  store.save(folder.path() / "run");
  CHECK(fs::exists(folder.path() / "run" / "generation-1" / "manifest.json"));
}

TEST_CASE("no file of a checkpoint is written through a link that another user has put there") {
  const test::ScratchFolder folder;
  const fs::path victim = folder.path() / "victim";
  fs::create_directory(victim);
  std::ofstream(victim / "file") << "mine";
  fs::create_symlink(victim, folder.path() / "generation-1.partial");
  test::expect_error([&] { make_new_folder(folder.path() / "generation-1.partial"); },
                     ErrorCode::io, {"File exists"});
  const fs::path below = folder.path() / "generation-1.partial";
  test::expect_error([&] { (void)File::open_to_write(below / "file"); }, ErrorCode::io,
                     {"cannot open"});
  test::expect_error([&] { (void)File::open_new(below / "new"); }, ErrorCode::io, {"cannot make"});
  fs::create_symlink(victim / "file", folder.path() / "file");
  test::expect_error([&] { (void)File::open_to_write(folder.path() / "file"); }, ErrorCode::io,
                     {"symbolic links"});
  CHECK(read_text(victim / "file", 10) == "mine");
  CHECK(!fs::exists(victim / "new"));
  KVStore store = KVStore::create("local");
  store.init("w", Tensor::full({4}, 1.0F));
  store.save(folder.path());
  CHECK(fs::exists(folder.path() / "generation-1" / "manifest.json"));
  CHECK(read_text(victim / "file", 10) == "mine");
}

TEST_CASE("states of an optimizer are saved under a name of the longest length, and by links") {
  const test::ScratchFolder folder;
  fs::create_directory(folder.path() / "real");
  fs::create_directory_symlink("real", folder.path() / "link");
  KVStore store = KVStore::create("local");
  store.init("w", Tensor::full({4}, 1.0F));
  store.set_optimizer(tutti::optimizer::sgd({.momentum = 0.9}));
  const std::string name(255, 'n');
  store.save_optimizer_states(folder.path() / "link" / name);
  store.load_optimizer_states(folder.path() / "real" / name);
}
