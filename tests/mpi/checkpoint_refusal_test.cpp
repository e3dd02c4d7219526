// SPDX-License-Identifier: Apache-2.0
// Saves and loads whose content does not fit: refused by name on every rank, and nothing changes.
#include <string>
#include <vector>

#include "tests/mpi/checkpoint_fixture.hpp"

using test::check_unchanged;
using test::filled;
using test::store_with_keys;
using test::throws_on_all;
using test::with_folder;
using test::fs::path;
using tutti::DType;
using tutti::ErrorCode;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;

namespace {

constexpr auto kInvalid = ErrorCode::invalid_argument;

void check_load_throws(KVStore& kv, const path& directory, ErrorCode code,
                       const std::vector<std::string>& words,
                       test::Place where = test::Place::current()) {
  CHECK(throws_on_all([&] { kv.load(directory); }, code, words, where));
}

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
