// SPDX-License-Identifier: Apache-2.0
// Files that cannot be written or read: one error on every rank that says where and why, a
// checkpoint that is as it was, and a store that works on.
#include <csignal>
#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include "tests/mpi/checkpoint_fixture.hpp"

using test::check_unchanged;
using test::damage;
using test::filled;
using test::generation;
using test::store_with_keys;
using test::throws_on_all;
using test::with_folder;
using test::fs::path;
using tutti::ErrorCode;
using tutti::KVStore;
using tutti::LoadResult;

namespace {

constexpr int kAnywhere = 5000;  ///< a byte of the data of small files

/// A store whose generations 1 and 2 hold 2, 4 and 2, 40.
KVStore saved_twice(const path& directory) {
  KVStore kv = store_with_keys();
  kv.save(directory, {{"number", "1"}});
  kv.push(5, filled(test::rank() == 0 ? 40 : 0, {400}));
  kv.save(directory, {{"number", "2"}});
  return kv;
}

void check_load_throws(KVStore& kv, const path& directory, ErrorCode code,
                       const std::vector<std::string>& words,
                       test::Place where = test::Place::current()) {
  CHECK(throws_on_all([&] { kv.load(directory); }, code, words, where));
}

}  // namespace

TEST_CASE("a directory that is missing or holds no checkpoint is an error, or empty if asked") {
  with_folder([](const path& folder) {
    KVStore kv = store_with_keys();
    for (const path& directory : {folder, folder / "missing", folder / "missing" / "too"}) {
      check_load_throws(kv, directory, ErrorCode::io,
                        {"there is no checkpoint in", directory.string()});
      const LoadResult result = kv.load(directory, {.may_be_absent = true});
      CHECK(test::agree(!result && result.metadata.empty()));
    }
    CHECK(throws_on_all([&] { kv.save(folder / "missing" / "too"); }, ErrorCode::io,
                        {"rank 0", "cannot make the folder", "No such file", "must exist"}));
    CHECK(throws_on_all([&] { kv.load_optimizer_states(folder / "missing"); }, ErrorCode::io,
                        {"rank 0", "cannot open", "No such file"}));
    check_unchanged(kv);
  });
}

TEST_CASE("a file where the directory should be is an error that names it") {
  with_folder([](const path& folder) {
    KVStore kv = store_with_keys();
    if (test::rank() == 0) std::ofstream(folder / "file") << "text";
    CHECK(throws_on_all([&] { kv.save(folder / "file"); }, ErrorCode::io,
                        {"rank 0", (folder / "file").string(), "exists"}));
    check_load_throws(kv, folder / "file", ErrorCode::io, {"rank 0", "Not a directory"});
    check_unchanged(kv);
  });
}

TEST_CASE("a folder without permission is an error that names rank, path and reason") {
  with_folder([](const path& folder) {
    KVStore kv = saved_twice(folder / "c");
    if (test::rank() == 0) {
      test::fs::permissions(folder / "c", test::fs::perms::none);
      CHECK((getuid() != 0 || seteuid(65534) == 0));  // root may do everything
    }
    CHECK(throws_on_all([&] { kv.save(folder / "c"); }, ErrorCode::io,
                        {"rank 0", "host", folder.string(), "Permission denied", "check owner"}));
    check_load_throws(kv, folder / "c", ErrorCode::io, {"rank 0", "Permission denied"});
    if (test::rank() == 0) {
      CHECK((getuid() != 0 || seteuid(0) == 0));
      test::fs::permissions(folder / "c", test::fs::perms::owner_all);
    }
    CHECK(test::agree(true));
    CHECK(test::agree(kv.load(folder / "c").generation == 2));
  });
}

TEST_CASE("no room for the files on one rank is an error on all, and leaves what was there") {
  with_folder([](const path& folder) {
    KVStore kv = store_with_keys();
    kv.save(folder / "c", {{"number", "1"}});
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{5000, before.rlim_max};
    if (test::is_last()) setrlimit(RLIMIT_FSIZE, &small);
    for (int i = 0; i < 3; ++i) {
      CHECK(throws_on_all([&] { kv.save(folder / "c"); }, ErrorCode::io,
                          {test::last(), "host", "File too large", "ulimit -f"}));
    }
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(test::agree(!test::fs::exists(folder / "c" / "generation-2.partial")));
    check_unchanged(kv);
    CHECK(test::agree(kv.load(folder / "c").generation == 1));
    kv.save(folder / "c");
    CHECK(test::agree(kv.load(folder / "c").generation == 2));
  });
}

TEST_CASE("a directory that another process saves into is refused, and free when that is gone") {
  with_folder([](const path& folder) {
    KVStore kv = store_with_keys();
    kv.save(folder / "c");
    int other = -1;  // another handle of this process, as another process would have
    if (test::rank() == 0) {
      other = open((folder / "c").c_str(), O_RDONLY | O_DIRECTORY);
      REQUIRE(flock(other, LOCK_EX) == 0);
    }
    CHECK(throws_on_all([&] { kv.save(folder / "c"); }, ErrorCode::io,
                        {"rank 0", "another process is saving", folder.string()}));
    if (test::rank() == 0) close(other);
    CHECK(test::agree(true));
    kv.save(folder / "c");
  });
}

TEST_CASE(
    "a damaged newest generation is passed over and named, and the next save keeps the good") {
  for (const char* name : {"weights.safetensors", "manifest.json"}) {
    CAPTURE(std::string(name));
    with_folder([&](const path& folder) {
      KVStore kv = saved_twice(folder / "c");
      damage(generation(folder / "c", 2) / name, name[0] == 'w' ? kAnywhere : 60);
      const LoadResult result = kv.load(folder / "c");
      CHECK(test::agree(result.generation == 1 && result.metadata.at("number") == "1"));
      CHECK(test::agree(result.damaged.size() == 1 &&
                        result.damaged[0].find(name) != std::string::npos &&
                        result.damaged[0].find("generation 2") != std::string::npos));
      check_unchanged(kv);
      kv.save(folder / "c");
      CHECK(test::agree(!test::fs::exists(generation(folder / "c", 2))));
      damage(generation(folder / "c", 3) / name, name[0] == 'w' ? kAnywhere : 60);
      CHECK(test::agree(kv.load(folder / "c").generation == 1));
    });
  }
}

TEST_CASE("damage names the tensors it hits, truncation and missing files are told apart") {
  with_folder([](const path& folder) {
    KVStore kv = saved_twice(folder / "c");
    const path newest = generation(folder / "c", 2) / "weights.safetensors";
    const path older = generation(folder / "c", 1) / "weights.safetensors";
    damage(newest, kAnywhere);
    if (test::rank() == 0) test::fs::resize_file(older, 5000);
    CHECK(test::agree(true));
    check_load_throws(kv, folder / "c", ErrorCode::corrupt_file,
                      {"no checkpoint in", "generation 2 is damaged", "rank", "(3, 5)", "checksum",
                       "generation 1 is damaged", "truncated"});
    if (test::rank() == 0) test::fs::remove(older);
    CHECK(test::agree(true));
    check_load_throws(kv, folder / "c", ErrorCode::corrupt_file, {"generation 1", "is missing"});
    if (test::rank() == 0) test::fs::rename(newest, older);
    CHECK(test::agree(true));
    check_load_throws(kv, folder / "c", ErrorCode::corrupt_file, {"generation 2", "is missing"});
    if (test::rank() == 0) test::fs::remove_all(generation(folder / "c", 1));
    CHECK(test::agree(true));
    check_load_throws(kv, folder / "c", ErrorCode::corrupt_file, {"generation 2", "is missing"});
    kv.push(5, filled(test::rank() == 0 ? 4 : 0, {400}));
    check_unchanged(kv);
  });
}

TEST_CASE("a file of another checkpoint is no part of this one") {
  with_folder([](const path& folder) {
    KVStore kv = saved_twice(folder / "c");
    if (test::rank() == 0) {
      test::fs::copy_file(generation(folder / "c", 1) / "weights.safetensors",
                          generation(folder / "c", 2) / "weights.safetensors",
                          test::fs::copy_options::overwrite_existing);
    }
    CHECK(test::agree(true));
    const LoadResult result = kv.load(folder / "c");
    CHECK(test::agree(result.generation == 1));
    CHECK(test::agree(result.damaged.at(0).find("not the file that") != std::string::npos));
  });
}

TEST_CASE("ranks that do not see rank 0's files get everything from it") {
  with_folder([](const path& folder) {
    const path here = test::fs::current_path();
    const path own = folder / (test::rank() == 0 ? "first" : "others");
    if (test::rank() < 2) test::fs::create_directory(own);
    CHECK(test::agree(true));
    test::fs::current_path(own);
    KVStore kv = store_with_keys();
    kv.set_optimizer(tutti::optimizer::adam());
    kv.save("c", {{"number", "1"}});
    kv.save_optimizer_states("states");
    KVStore other = test::dist();
    other.set_optimizer(tutti::optimizer::adam());
    CHECK(test::agree(other.load("c").metadata.at("number") == "1"));
    CHECK(test::all_are(test::stored(other, 3), 2));
    other.load_optimizer_states("states");
    test::fs::current_path(here);
    CHECK(test::agree(test::rank() == 0 || !test::fs::exists(own / "c")));
  });
}
