// SPDX-License-Identifier: Apache-2.0
// Residuals of gradient compression in checkpoints: a run that goes on ends with the same bits.
#include <vector>

#include "tests/mpi/checkpoint_fixture.hpp"
#include "tests/support/mpi_test.hpp"

using tutti::KVStore;

namespace {

constexpr std::int64_t kCount = 70001;

void train(KVStore& kv, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t step = first; step < last; ++step) {
    kv.push({3, 5}, {test::random_tensor({kCount}, tutti::DType::float32, test::rank(), step),
                     test::random_tensor({100}, tutti::DType::float32, test::rank(), step + 99)});
  }
}

KVStore store(const char* compression, const test::Layout& layout, bool with_keys = true) {
  tutti::Settings settings = test::settings_for(layout);
  settings.log = tutti::LogLevel::quiet;
  KVStore kv = KVStore::create("dist", settings);
  kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 0.1, .momentum = 0.9}));
  kv.set_gradient_compression(compression);
  if (with_keys)
    kv.init({3, 5, 7}, {test::filled(1, {kCount}), test::filled(2, {100}),
                        test::filled(3)});  // 7 is never pushed: it has no residual
  return kv;
}

bool are_equal(const KVStore& left, const KVStore& right) {
  return test::agree(test::same_bits(left.view(3), right.view(3)) &&
                     test::same_bits(left.view(5), right.view(5)));
}

/// A compressing store with two generations, of steps 1 and 2.
KVStore saved_twice(const test::fs::path& directory) {
  KVStore kv = store("2bit", test::one_node());
  for (int step = 0; step < 2; ++step) {
    train(kv, step, step + 1);
    kv.save(directory, {{"step", std::to_string(step + 1)}});
  }
  return kv;
}

}  // namespace

TEST_CASE("a compressed run goes on from a checkpoint with the same bits, in every layout") {
  for (const test::Layout& layout : test::all_layouts()) {
    for (const char* compression :
         {"2bit,threshold=0.5", "1bit,threshold=0.1", "topk,ratio=0.02", "fp16",
          "2bit,threshold=0.5,leg=between", "topk,ratio=0.02,leg=between"}) {
      CAPTURE(test::to_string(layout));
      CAPTURE(std::string(compression));
      test::with_folder([&](const test::fs::path& folder) {
        KVStore whole = store(compression, layout);
        train(whole, 0, 3);
        whole.save(folder / "run");
        KVStore with_keys = store(compression, layout);
        train(with_keys, 7, 9);  // residuals of its own, which are lost
        CHECK(with_keys.load(folder / "run").reset_residuals.empty());
        KVStore without = store(compression, layout, /*with_keys=*/false);
        CHECK(without.load(folder / "run").reset_residuals.empty());
        for (KVStore* kv : {&whole, &with_keys, &without}) train(*kv, 3, 6);
        CHECK(are_equal(whole, with_keys));
        CHECK(are_equal(whole, without));
      });
    }
  }
}

TEST_CASE("another compression or layout, or weights alone, begin with residuals of zero") {
  test::with_folder([](const test::fs::path& folder) {
    KVStore saved = store("2bit,threshold=0.5", test::one_node());
    train(saved, 0, 3);
    saved.save(folder / "run");

    const auto check = [&](KVStore kv, const char* words) {
      const std::string reason = kv.load(folder / "run").reset_residuals;
      const std::string was = "2bit,threshold=0.5,leg=all on " + std::to_string(test::size());
      CHECK(test::agree(reason.find(was) != std::string::npos));
      CHECK(test::agree(reason.find(words) != std::string::npos));
      KVStore fresh = store("2bit,threshold=0.5", test::one_node());
      fresh.load(folder / "run", {.weights_only = true});  // whose momentum is new, too
      kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 0.1, .momentum = 0.9}));
      kv.set_gradient_compression("2bit,threshold=0.5");  // residuals of zero in any case
      for (KVStore* each : {&kv, &fresh}) train(*each, 3, 5);
      CHECK(are_equal(kv, fresh));
    };
    check(store("2bit,threshold=0.25", test::one_node()), "2bit,threshold=0.25,leg=all on");
    check(store("none", test::one_node()), "this store's would be of none on");
    check(store("2bit,threshold=0.5,leg=between", test::one_node()), "leg=between");

    tutti::Settings silent = test::settings();
    silent.log = tutti::LogLevel::quiet;
    KVStore local = KVStore::create("local", silent);
    local.set_optimizer(tutti::optimizer::sgd({.learning_rate = 0.1, .momentum = 0.9}));
    local.set_gradient_compression("2bit,threshold=0.5");
    const std::string reason = local.load(folder / "run").reset_residuals;
    CHECK(test::agree(reason.empty() == (test::size() == 1)));
    CHECK(test::agree(test::size() == 1 || reason.ends_with("on 1 rank: they begin at zero")));
  });
}

TEST_CASE("residuals of lanes belong to the nodes") {
  if (test::size() < 4) return;  // fewer ranks have one layout with a lane that sends a share
  test::with_folder([](const test::fs::path& folder) {
    const test::Layout two = {2, test::size() - 2};
    const test::Layout ones(static_cast<std::size_t>(test::size()), 1);
    KVStore saved = store("2bit,leg=between", two);
    train(saved, 0, 2);
    saved.save(folder / "run");
    CHECK(store("2bit,leg=between", two).load(folder / "run").reset_residuals.empty());
    const auto other = store("2bit,leg=between", ones).load(folder / "run");
    CHECK(test::agree(other.reset_residuals.find("nodes 0 1 | 2 3") != std::string::npos));
    CHECK(test::agree(other.reset_residuals.find("nodes 0 | 1 | 2 | 3") != std::string::npos));
  });
}

TEST_CASE("residuals that would be thrown away are not read, and their damage is none") {
  test::with_folder([](const test::fs::path& folder) {
    KVStore kv = saved_twice(folder / "run");
    const auto is_newest = [&](KVStore other, const std::string& words) {
      other.set_optimizer(tutti::optimizer::sgd({.learning_rate = 0.1, .momentum = 0.9}));
      const auto loaded = other.load(folder / "run");
      return test::agree(loaded.metadata.at("step") == "2" && loaded.damaged.empty() &&
                         loaded.reset_residuals.find(words) != std::string::npos);
    };
    const auto local = [] {
      tutti::Settings settings = test::settings();
      settings.log = tutti::LogLevel::quiet;
      KVStore alone = KVStore::create("local", settings);
      alone.set_gradient_compression("2bit");
      return alone;
    };
    const std::string saved = "2bit,threshold=0.5,leg=all on " + std::to_string(test::size());
    const auto newest = test::generation(folder / "run", 2);
    test::damage(newest / "residuals-0.safetensors", 5000);
    CHECK(is_newest(store("1bit", test::one_node()), saved));
    if (test::size() == 1) return;
    CHECK(is_newest(local(), saved));
    test::damage(newest / "residuals-0.safetensors", 60);  // of the header, which would say whose
    CHECK(is_newest(local(), "of " + std::to_string(test::size()) + " ranks"));
    if (test::rank() == 0) test::fs::remove(newest / "residuals-0.safetensors");
    CHECK(test::agree(true));
    CHECK(is_newest(local(), "of " + std::to_string(test::size()) + " ranks"));
  });
}

TEST_CASE("after a first compressed push that was refused the store is saved as any other") {
  for (const char* compression : {"2bit", "2bit,leg=between"}) {
    CAPTURE(std::string(compression));
    test::with_folder([&](const test::fs::path& folder) {
      KVStore kv = store(compression, test::Layout(static_cast<std::size_t>(test::size()), 1));
      const auto push = [&] { kv.push(5, test::filled(1, {test::is_last() ? 99 : 100})); };
      CHECK(test::throws_on_all(push, tutti::ErrorCode::invalid_argument, {"key 5"}));
      kv.save(folder / "run");
      kv.save_optimizer_states(folder / "states");
      train(kv, 0, 1);
      CHECK(test::throws_on_all(push, tutti::ErrorCode::invalid_argument, {"key 5"}));
      kv.save(folder / "run");
      KVStore other = store(compression, test::Layout(static_cast<std::size_t>(test::size()), 1));
      CHECK(test::agree(other.load(folder / "run").reset_residuals.empty()));
      for (KVStore* each : {&kv, &other}) train(*each, 3, 5);
      CHECK(are_equal(kv, other));
    });
  }
}

TEST_CASE("a damaged byte of a rank's residuals is found, and the generation before is taken") {
  test::with_folder([](const test::fs::path& folder) {
    KVStore kv = saved_twice(folder / "run");
    const std::string name = "residuals-" + std::to_string(test::size() - 1) + ".safetensors";
    test::damage(test::generation(folder / "run", 2) / name, 5000);
    const auto loaded = kv.load(folder / "run");
    CHECK(test::agree(loaded.metadata.at("step") == "1" && loaded.reset_residuals.empty()));
    CHECK(test::agree(loaded.damaged.at(0).find(name) != std::string::npos));
    test::damage(test::generation(folder / "run", 1) / name, 5000);
    CHECK(test::throws_on_all([&] { kv.load(folder / "run"); }, tutti::ErrorCode::corrupt_file,
                              {name, "3"}));
  });
}
