// SPDX-License-Identifier: Apache-2.0
// Checkpoints that cannot be written or read.
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
using tutti::DType;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::LoadResult;
using tutti::Tensor;

// --- faults --------------------------------------------------------------------------------------

// Files that cannot be written or read: one error on every rank that says where and why, a
// checkpoint that is as it was, and a store that works on.

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

TEST_CASE(
    "the generation that was loaded is kept, however its directory is spelt or it was loaded") {
  for (const bool weights_only : {false, true}) {
    CAPTURE(weights_only);
    with_folder([&](const path& folder) {
      KVStore kv = saved_twice(folder / "c");
      damage(generation(folder / "c", 2) / "weights.safetensors", kAnywhere);
      const path other = folder / "." / "c" / "";
      CHECK(test::agree(kv.load(other, {.weights_only = weights_only}).generation == 1));
      kv.save(folder / "c");
      CHECK(test::agree(!test::fs::exists(generation(folder / "c", 2))));
      CHECK(test::agree(test::fs::exists(generation(folder / "c", 1))));
    });
  }
}

TEST_CASE("weights alone do not make a generation the one to keep before one that is known whole") {
  with_folder([](const path& folder) {
    KVStore kv = store_with_keys();
    kv.set_optimizer(tutti::optimizer::sgd({.momentum = 0.9}));
    for (int i = 0; i < 2; ++i) {
      kv.push(5, filled(0, {400}));
      kv.save(folder / "c");
    }
    damage(generation(folder / "c", 2) / "optimizer.safetensors", kAnywhere);
    CHECK(test::agree(kv.load(folder / "c").generation == 1));
    CHECK(test::agree(kv.load(folder / "c", {.weights_only = true}).generation == 2));
    kv.save(folder / "c");
    CHECK(test::agree(test::fs::exists(generation(folder / "c", 1))));
    CHECK(test::agree(!test::fs::exists(generation(folder / "c", 2))));
  });
}

TEST_CASE("a rank that runs another optimizer than others, or none, is found before a save") {
  if (test::size() == 1) return;
  with_folder([](const path& folder) {
    for (const char* name : {"sgd,learning_rate=0.5", "adam", ""}) {
      KVStore kv = store_with_keys();
      if (!test::is_last()) {
        kv.set_optimizer(tutti::optimizer::create("sgd,learning_rate=0.25"));
      } else if (name[0] != 0) {
        kv.set_optimizer(tutti::optimizer::create(name));
      } else {
        kv.set_updater([](const Key&, tutti::ConstTensorView, tutti::TensorView) {});
      }
      CHECK(throws_on_all([&] { kv.save(folder / "c"); }, ErrorCode::mismatch, {"save to"}));
      CHECK(test::agree(!test::fs::exists(folder / "c")));
    }
  });
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

// --- what is refused -----------------------------------------------------------------------------

// Saves and loads whose content does not fit: refused by name on every rank, and nothing changes.

namespace {

constexpr auto kInvalid = ErrorCode::invalid_argument;

}  // namespace

TEST_CASE("keys, shapes and dtypes that differ are refused by name, and nothing changes") {
  with_folder([](const path& folder) {
    store_with_keys().save(folder / "c");
    KVStore more = test::dist();
    more.init({3, 5, 7}, {filled(2), filled(4, {400}), filled(1)});
    check_load_throws(more, folder / "c", kInvalid,
                      {"load", "key 7 (2, 3) float32", "not in the check"});
    check_unchanged(more);
    KVStore fewer = test::dist();
    fewer.init(3, filled(9));
    check_load_throws(fewer, folder / "c", kInvalid, {"key 5 (400) float32", "not in this store"});
    CHECK(test::all_are(test::stored(fewer, 3), 9));
    KVStore shape = test::dist();
    shape.init({3, 5}, {filled(9, {3, 2}), filled(8, {400})});
    check_load_throws(shape, folder / "c", kInvalid,
                      {"key 3 (3, 2) float32", "(2, 3) float32 in the"});
    KVStore dtype = test::dist();
    dtype.init({3, 5}, {filled(9), Tensor::full({400}, 8, DType::int32)});
    check_load_throws(dtype, folder / "c", kInvalid, {"key 5 (400) int32", "(400) float32 in the"});
    CHECK(test::all_are(test::stored(dtype, 3), 9));
    KVStore strings = test::dist();
    strings.init({"3", "5"}, {filled(9), filled(8, {400})});
    check_load_throws(strings, folder / "c", kInvalid, {"key 3", "not in this store"});
    CHECK(test::all_are(test::stored(strings, "3"), 9));
  });
}

TEST_CASE("another optimizer, or none on one side, is refused by name, and nothing changes") {
  with_folder([](const path& folder) {
    KVStore kv = store_with_keys();
    kv.save(folder / "plain");
    kv.set_optimizer(tutti::optimizer::adam());
    kv.save(folder / "adam");
    kv.save_optimizer_states(folder / "states");
    check_load_throws(kv, folder / "plain", kInvalid, {"saved without an optimizer", "runs adam"});
    kv.set_optimizer(tutti::optimizer::sgd({.momentum = 0.9}));
    check_load_throws(kv, folder / "adam", kInvalid, {"of adam", "runs sgd", "set_optimizer"});
    CHECK(throws_on_all([&] { kv.load_optimizer_states(folder / "states"); }, kInvalid,
                        {"of adam", "runs sgd"}));
    kv.set_optimizer(tutti::optimizer::adam({.weight_decay = 0.5}));
    check_load_throws(
        kv, folder / "adam", kInvalid,
        {"are of adam,learning_rate=0.001, but", "weight_decay=0.5;", "other_options"});
    kv.set_updater(nullptr);
    check_load_throws(kv, folder / "adam", kInvalid, {"runs none", "weights_only"});
    CHECK(throws_on_all([&] { kv.load_optimizer_states(folder / "states"); }, kInvalid,
                        {"runs no optimizer"}));
    CHECK(throws_on_all([&] { kv.save_optimizer_states(folder / "states"); }, kInvalid,
                        {"runs no optimizer"}));
    check_unchanged(kv);
  });
}

TEST_CASE("states of other keys, kinds of keys and numbers of states are refused") {
  with_folder([](const path& folder) {
    const auto sgd = [](double momentum) {
      return tutti::optimizer::sgd({.learning_rate = 1, .momentum = momentum});
    };
    KVStore kv = store_with_keys();
    kv.set_optimizer(sgd(0.5));
    kv.push(3, filled(0));
    kv.save_optimizer_states(folder / "states");
    const auto refused = [&](const std::vector<Key>& keys, double momentum,
                             const std::vector<std::string>& words) {
      KVStore other = test::dist();
      for (const Key& key : keys) other.init(key, filled(1, {400}));
      other.set_optimizer(sgd(momentum));
      return throws_on_all(
          [&] { other.load_optimizer_states(folder / "states", {.other_options = true}); },
          kInvalid, words);
    };
    CHECK(refused({3, 5}, 0.5, {"state 3/0", "(2, 3) float32", "(400) float32"}));
    CHECK(refused({3}, 0.5, {"3/0"}));
    CHECK(refused({7}, 0.5, {"no states for this store's key 7"}));
    CHECK(refused({5}, 0.5, {"key 3", "does not hold"}));
    CHECK(refused({"3", "5"}, 0.5, {"numbers", "strings"}));
    KVStore plain = store_with_keys();
    plain.set_optimizer(sgd(0));
    CHECK(throws_on_all(
        [&] { plain.load_optimizer_states(folder / "states", {.other_options = true}); }, kInvalid,
        {"state that is nobody's", "3/0"}));
    plain.push(3, filled(0));
    plain.save_optimizer_states(folder / "plain");
    CHECK(
        throws_on_all([&] { kv.load_optimizer_states(folder / "plain", {.other_options = true}); },
                      kInvalid, {"key 3 has 0 states", "here has 1"}));
  });
}

TEST_CASE("ranks that save to or load from different places, or other metadata, are a mismatch") {
  if (test::size() == 1) return;
  with_folder([](const path& folder) {
    KVStore kv = store_with_keys();
    CHECK(throws_on_all([&] { kv.save(folder / (test::is_last() ? "b" : "a")); },
                        ErrorCode::mismatch, {test::last(), "save to", "/a", "/b"}));
    CHECK(throws_on_all(
        [&] {
          kv.save(folder / "a", {{"rank", std::to_string(test::rank())}});
        },
        ErrorCode::mismatch, {"save to"}));
    CHECK(throws_on_all([&] { test::is_last() ? kv.barrier() : kv.save(folder / "a"); },
                        ErrorCode::mismatch, {test::last(), "barrier", "save to"}));
    CHECK(test::agree(!test::fs::exists(folder / "a")));
    kv.save(folder / "a");
    kv.save(folder / "b");
    CHECK(throws_on_all([&] { kv.load(folder / (test::is_last() ? "b" : "a")); },
                        ErrorCode::mismatch, {test::last(), "load of", "/a", "/b"}));
    CHECK(throws_on_all([&] { kv.load(folder / "a", {.weights_only = test::is_last()}); },
                        ErrorCode::mismatch, {"load of"}));
    check_unchanged(kv);
  });
}

TEST_CASE(
    "names and metadata that are not UTF-8 are refused, and so is a key of the format's own") {
  with_folder([](const path& folder) {
    KVStore kv = test::dist();
    kv.init("\xff", filled(1));
    CHECK(throws_on_all([&] { kv.save(folder / "c"); }, kInvalid, {"save", "not UTF-8"}));
    KVStore own = test::dist();
    own.init("__metadata__", filled(1));
    CHECK(throws_on_all([&] { own.save(folder / "c"); }, kInvalid, {"__metadata__"}));
    KVStore good = store_with_keys();
    CHECK(throws_on_all(
        [&] {
          good.save(folder / "c", {{"m", "\xc3"}});
        },
        kInvalid, {"metadata 'm'", "not UTF-8"}));
    CHECK(test::agree(!test::fs::exists(folder / "c")));
    check_unchanged(good);
  });
}

TEST_CASE("an updater cannot save or load") {
  with_folder([](const path& folder) {
    KVStore kv = store_with_keys();
    kv.save(folder / "c");
    kv.set_updater([&](const Key&, tutti::ConstTensorView, tutti::TensorView) {
      CHECK(test::is_refusal(test::error_of([&] { kv.save(folder / "c"); }), kInvalid,
                             {"save", "updater"}));
      CHECK(test::is_refusal(test::error_of([&] { kv.load(folder / "c"); }), kInvalid,
                             {"load", "updater"}));
    });
    kv.push(3, filled(1));
  });
}
