// SPDX-License-Identifier: Apache-2.0
// Snapshots in the nodes' memory, and saves that go on while the program computes.
#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/mpi/checkpoint_fixture.hpp"
#include "tests/support/mpi_test.hpp"

using test::fs::path;
using tutti::ErrorCode;
using tutti::KVStore;
using tutti::LoadResult;
using tutti::Settings;

namespace {

constexpr std::int64_t kManyElements = 1100001;  // two chunks

void train_steps(KVStore& kv, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t step = first; step < last; ++step) {
    kv.push({3, 5},
            {test::random_tensor({kManyElements}, tutti::DType::float32, test::rank(), step),
             test::random_tensor({100}, tutti::DType::float32, test::rank(), step + 99)});
  }
}

Settings settings_in(const path& folder, const test::Layout& layout) {
  Settings settings = test::settings_for(layout);
  settings.log = tutti::LogLevel::quiet;
  settings.snapshots = (folder / "memory").string();
  return settings;
}

KVStore new_store(const Settings& settings, const char* compression = nullptr) {
  KVStore kv = KVStore::create("dist", settings);
  kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 0.1, .momentum = 0.9}));
  if (compression != nullptr) kv.set_gradient_compression(compression);
  return kv;
}

KVStore store_that_trains(const Settings& settings, const char* compression = nullptr) {
  KVStore kv = new_store(settings, compression);
  kv.init({3, 5, 7}, {test::filled(1, {kManyElements}), test::filled(2, {100}), test::filled(3)});
  return kv;
}

bool hold_the_same(const KVStore& left, const KVStore& right) {
  return test::agree(test::same_bits(left.view(3), right.view(3)) &&
                     test::same_bits(left.view(5), right.view(5)));
}

/// The files of this name in the memory of all nodes, newest generation last.
std::vector<path> files_in_memory(const path& folder, const std::string& name) {
  std::vector<path> found;
  for (const auto& entry : test::fs::recursive_directory_iterator(folder / "memory")) {
    if (entry.path().filename() == name) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

void flip_byte(const path& file, std::streamoff from_end) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(-from_end, std::ios::end);
  const auto position = stream.tellg();
  const auto byte = static_cast<char>(stream.get() ^ 1);
  stream.seekp(position);
  stream.put(byte);
}

std::string content_of(const path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

TEST_CASE("a run goes on from a snapshot with the same bits, in every layout and compression") {
  for (const test::Layout& layout : test::all_layouts()) {
    for (const char* compression : {static_cast<const char*>(nullptr), "2bit,threshold=0.5"}) {
      CAPTURE(test::to_string(layout));
      test::with_folder([&](const path& folder) {
        const Settings settings = settings_in(folder, layout);
        std::optional<KVStore> whole = store_that_trains(settings, compression);
        train_steps(*whole, 0, 2);
        tutti::snapshot(*whole, folder / "run", {{"step", "2"}});
        train_steps(*whole, 2, 4);

        KVStore other = new_store(settings, compression);
        const LoadResult found = other.load(folder / "run");
        CHECK(test::agree(found.from_memory && found.metadata.at("step") == "2"));
        CHECK(test::agree(found.pushes == 2 && found.lost_pushes == 2));
        CHECK(test::agree(found.reset_residuals.empty()));
        train_steps(other, 2, 4);
        CHECK(hold_the_same(*whole, other));
      });
    }
  }
}

TEST_CASE("the newer one of memory and disk is loaded, by its pushes") {
  test::with_folder([](const path& folder) {
    const Settings settings = settings_in(folder, test::one_node());
    KVStore kv = store_that_trains(settings);
    const auto loaded_step = [&] {
      KVStore other = new_store(settings);
      const LoadResult found = other.load(folder / "run");
      return found.metadata.at("step") + (found.from_memory ? " memory" : " disk");
    };
    train_steps(kv, 0, 1);
    kv.save(folder / "run", {{"step", "1"}});
    CHECK(test::agree(loaded_step() == "1 disk"));
    for (int step = 2; step < 7; ++step) {  // more than there are slots of memory
      train_steps(kv, 1, 2);
      tutti::snapshot(kv, folder / "run", {{"step", std::to_string(step)}});
      CHECK(test::agree(loaded_step() == std::to_string(step) + " memory"));
    }
    CHECK(test::agree(files_in_memory(folder, "weights.safetensors").size() == 2));
    train_steps(kv, 2, 3);
    kv.save(folder / "run", {{"step", "7"}});
    CHECK(test::agree(loaded_step() == "7 disk"));
  });
}

TEST_CASE("a node whose memory is gone or damaged gets the snapshot from another node") {
  if (test::size() < 2) return;
  const test::Layout layout = test::all_layouts().back();
  test::with_folder([&](const path& folder) {
    const Settings settings = settings_in(folder, layout);
    KVStore kv = store_that_trains(settings);
    train_steps(kv, 0, 1);
    tutti::snapshot(kv, folder / "run", {{"step", "1"}});
    train_steps(kv, 1, 2);
    tutti::snapshot(kv, folder / "run", {{"step", "2"}});
    const std::size_t nodes = files_in_memory(folder, "progress").size();
    for (const bool removes : {true, false}) {
      const std::vector<path> all = files_in_memory(folder, "weights.safetensors");
      REQUIRE(test::agree(all.size() >= 2));
      const path& newest = all.back();
      if (test::rank() == 0) {
        removes ? static_cast<void>(test::fs::remove_all(newest.parent_path()))
                : flip_byte(newest, 1000);
      }
      REQUIRE(test::agree(true));
      KVStore other = new_store(settings);
      const LoadResult found = other.load(folder / "run");
      const std::string step = nodes > 1 ? "2" : "1";
      CHECK(test::agree(found.from_memory && found.metadata.at("step") == step));
      if (nodes > 1) CHECK(hold_the_same(kv, other));
      CHECK(test::agree(found.damaged.size() == (removes ? 0U : 1U)));
      if (nodes == 1) return;  // what is there of one node's is the older one, once
    }
  });
}

TEST_CASE("a save that goes on writes what was there when it was called, as save() does") {
  test::with_folder([](const path& folder) {
    Settings settings = settings_in(folder, test::one_node());
    settings.snapshots.clear();  // a folder of the store's own
    KVStore kv = store_that_trains(settings);
    train_steps(kv, 0, 2);
    kv.save(folder / "at once", {{"step", "2"}});
    const tutti::Pending pending = kv.save_async(folder / "run", {{"step", "2"}});
    train_steps(kv, 2, 4);
    pending.wait();
    CHECK(pending.ready());
    kv.save_async(folder / "run", {{"step", "4"}}).wait();
    kv.save_async(folder / "run", {{"step", "4"}});
    kv.barrier();
    KVStore other = new_store(settings);
    tutti::snapshot(kv, folder / "run");  // waits for nothing; leaves what is being written alone
    CHECK(test::agree(kv.load(folder / "run").generation == 3));  // waits for it
    CHECK(test::agree(other.load(folder / "run").generation == 3));
    CHECK(hold_the_same(kv, other));
    CHECK(test::agree(!test::fs::exists(test::generation(folder / "run", 1))));
    train_steps(kv, 0, 1);
    kv.load(folder / "at once");
    kv.save_async(folder / "copy").wait();
    kv.barrier();
    for (const char* name : {"weights.safetensors", "optimizer.safetensors"}) {
      CHECK(test::agree(content_of(test::generation(folder / "copy", 1) / name) ==
                        content_of(test::generation(folder / "at once", 1) / name)));
    }
  });
}

TEST_CASE("what a save that goes on fails with is said on rank 0, and then on all ranks") {
  test::with_folder([](const path& folder) {
    KVStore kv = store_that_trains(settings_in(folder, test::one_node()));
    const tutti::Pending pending = kv.save_async(folder / "no" / "parent");
    const auto error = test::error_of([&] { pending.wait(); });
    CHECK(test::agree(error.has_value() == (test::rank() == 0)));
    const auto save = [&] { kv.save(folder / "run"); };
    CHECK(test::throws_on_all(save, ErrorCode::io, {"no/parent"}));
    kv.save(folder / "run");
    CHECK(test::agree(kv.load(folder / "run").generation == 1));
  });
}

namespace {

tutti::Metadata no_metadata() { return {}; }

}  // namespace

TEST_CASE("snapshots are due at first and then after the time that was set") {
  test::with_folder([](const path& folder) {
    Settings settings = settings_in(folder, test::one_node());
    KVStore never = store_that_trains(settings);
    CHECK(!tutti::snapshot_when_due(never, folder / "run", no_metadata));
    settings.snapshot_every = std::chrono::duration<double>(1000);
    KVStore rarely = store_that_trains(settings);
    CHECK(tutti::snapshot_when_due(rarely, folder / "run", no_metadata));
    for (int call = 0; call < 50; ++call)
      CHECK(!tutti::snapshot_when_due(rarely, folder / "run", no_metadata));
    settings.snapshot_every = std::chrono::duration<double>(1e-9);
    KVStore often = store_that_trains(settings);
    int taken = 0;
    for (int call = 0; call < 4; ++call)
      taken += tutti::snapshot_when_due(often, folder / "run", no_metadata) ? 1 : 0;
    CHECK(test::agree(taken == 4));
  });
}

TEST_CASE("a folder that others can write to is refused") {
  test::with_folder([](const path& folder) {
    Settings settings = settings_in(folder, test::one_node());
    if (test::rank() == 0) {
      test::fs::create_directory(folder / "memory");
      test::fs::permissions(folder / "memory", test::fs::perms(0777));
    }
    REQUIRE(test::agree(true));
    KVStore kv = store_that_trains(settings);
    const auto snapshot = [&] { tutti::snapshot(kv, folder / "run"); };
    CHECK(test::throws_on_all(snapshot, ErrorCode::io, {"memory", "mode 700", "TUTTI_SNAPSHOTS"}));
  });
}
