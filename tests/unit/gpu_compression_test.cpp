// SPDX-License-Identifier: Apache-2.0
// Gradient compression of keys on fake GPUs, with the bits of keys on the CPU.
#include <algorithm>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "tests/support/checks.hpp"
#include "tests/support/fake_accelerator.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/unit/gpu_jobs.hpp"

using tutti::Communicator;
using tutti::cpu;
using tutti::Device;
using tutti::DType;
using tutti::ErrorCode;
using tutti::gpu;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;

namespace {

constexpr std::int64_t kCompressedCounts[] = {70'001, 0, 1, 7, 1'021};

constexpr const char* kGpuCompressions[] = {"2bit,threshold=0.5",
                                            "2bit,threshold=0.3,leg=between",
                                            "1bit,threshold=0.25",
                                            "1bit,threshold=0.25,leg=between",
                                            "fp16",
                                            "bf16",
                                            "bf16,leg=between",
                                            "topk,ratio=0.1",
                                            "topk,ratio=0.1,leg=between"};

constexpr const char* kCompressedRules[] = {"", "adam,learning_rate=0.1", "updater", "lamb"};

constexpr const char* kCompressedPaths[] = {"auto", "host", "peers", "nccl-all"};

void set_rule_of(KVStore& kv, const std::string& rule) {
  if (rule == "updater") {
    kv.set_updater([](const Key&, tutti::ConstTensorView sum, tutti::TensorView stored) {
      stored -= 0.25 * sum;
    });
  } else if (!rule.empty()) {
    kv.set_optimizer(tutti::optimizer::create(rule));
  }
}

/// A store with the keys 0, 1, ... of kCompressedCounts, on the devices `homes` in turn.
class CompressedRig {
 public:
  CompressedRig(KVStore store, std::vector<Device> homes, const std::string& compression,
                const std::string& rule)
      : kv(std::move(store)), homes_(std::move(homes)) {
    set_rule_of(kv, rule);
    for (std::size_t i = 0; i < std::size(kCompressedCounts); ++i) {
      kv.init(static_cast<int>(i),
              test::random_numbers_on(home(i), kCompressedCounts[i], 5 + static_cast<unsigned>(i)));
    }
    kv.set_gradient_compression(compression);
  }

  /// Pushes three values of the first key, and for the last key a value on the CPU.
  void push(unsigned step) {
    const auto rank = static_cast<unsigned>(kv.rank());
    std::vector<Key> keys = {0, 0};
    std::vector<Tensor> values;
    for (std::size_t i = 0; i < std::size(kCompressedCounts); ++i) {
      keys.emplace_back(static_cast<int>(i));
      const bool is_last = i + 1 == std::size(kCompressedCounts);
      const auto seed = static_cast<unsigned>(i) + 10 * step + 1000 * rank;
      for (unsigned more = 500; i == 0 && more <= 600; more += 100) {
        values.push_back(test::random_numbers_on(home(i), kCompressedCounts[i], seed + more));
      }
      values.push_back(
          test::random_numbers_on(is_last ? cpu() : home(i), kCompressedCounts[i], seed));
    }
    kv.push(keys, values);
    for (Tensor& value : values) value.fill(-7);  // they may be reused
  }

  [[nodiscard]] std::vector<float> weights() const {
    std::vector<float> all;
    for (std::size_t i = 0; i < std::size(kCompressedCounts); ++i) {
      const auto one = test::pulled<float>(kv, static_cast<int>(i), kCompressedCounts[i]);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  KVStore kv;

 private:
  [[nodiscard]] Device home(std::size_t key) const { return homes_[key % homes_.size()]; }

  std::vector<Device> homes_;
};

void require_same_weights(const CompressedRig& there, const CompressedRig& here, unsigned step) {
  const auto found = there.weights();
  const auto expected = here.weights();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (test::same_bits({&found[i], 1}, {&expected[i], 1})) continue;
    test::require_equal(found[i], expected[i],
                        "element " + std::to_string(i) + " of step " + std::to_string(step));
  }
}

}  // namespace

TEST_CASE("compressed pushes to GPUs have the bits of the cpu, in every layout, by every path") {
  unsigned turn = 0;
  for (const auto& layout : test::kLayouts) {
    for (const char* compression : kGpuCompressions) {
      const std::string rule = kCompressedRules[turn % std::size(kCompressedRules)];
      // Where nothing is compressed, GPUs sum in their own order, and by way of the host in that of
      // the CPU.
      const bool is_between = std::string(compression).find("between") != std::string::npos;
      const bool is_off = is_between && layout.size() == 1;
      const std::string path =
          is_off ? "host" : kCompressedPaths[turn / 2 % std::size(kCompressedPaths)];
      ++turn;
      if (test::kFewCases && turn % 7 != 0) continue;
      CAPTURE(compression);
      CAPTURE(rule);
      CAPTURE(path);
      const test::FakeGpus gpus(test::size_of_job(layout), turn);
      const auto outcomes = test::as_ranks(layout, test::by(path), [&](Communicator& world) {
        CompressedRig there(KVStore::create(world), {gpu(world.rank())}, compression, rule);
        CompressedRig here(KVStore::create(world), {cpu()}, compression, rule);
        for (unsigned step = 0; step < 3; ++step) {
          there.push(step);
          here.push(step);
          require_same_weights(there, here, step);
        }
        static_cast<void>(there.kv.verify());
      });
      CHECK(test::all_returned(outcomes));
    }
  }
}

TEST_CASE("keys of one rank on several GPUs are compressed as on the cpu, and as values change") {
  const test::FakeGpus gpus(3, 7);
  for (const char* compression : {"2bit,threshold=0.5", "topk,ratio=0.1"}) {
    CompressedRig there(KVStore::create("device"), {gpu(2), gpu(0), gpu(1)}, compression,
                        kCompressedRules[1]);
    CompressedRig here(KVStore::create("local"), {cpu()}, compression, kCompressedRules[1]);
    for (unsigned step = 0; step < 4; ++step) {
      for (CompressedRig* rig : {&there, &here}) {
        if (step == 2) rig->kv.set_gradient_compression("none");
        if (step == 3) rig->kv.set_gradient_compression(compression);
        rig->push(step);
      }
      require_same_weights(there, here, step);
    }
  }
}

TEST_CASE("on one node leg=between leaves the sum to the GPUs") {
  const test::FakeGpus gpus(3, 5);
  const auto outcomes = test::as_ranks({3}, test::by("auto"), [&](Communicator& world) {
    const Device mine = gpu(world.rank());
    auto kv = KVStore::create(world);
    kv.init(1, Tensor::zeros({100}, DType::float32, mine));
    kv.set_gradient_compression("2bit,leg=between");
    kv.push(1, test::ramp(100, DType::float32, world.rank(), mine));
    test::require_equal(test::pulled<float>(kv, 1, 100)[5], 18.0f, "key 1[5]");
  });
  CHECK(test::all_returned(outcomes));
  CHECK(std::ranges::count(gpus->ranges(), "compression of values") == 0);
}

TEST_CASE("a checkpoint of keys on GPUs has the residuals, and goes on with the same bits") {
  for (const auto& layout : {std::vector<int>{1}, std::vector<int>{1, 2}}) {
    for (const char* compression : {kGpuCompressions[0], kGpuCompressions[1]}) {
      const test::FakeGpus gpus(3, 5);
      const test::ScratchFolder folder;
      const auto outcomes = test::as_ranks(layout, test::by("auto"), [&](Communicator& world) {
        const auto make = [&] {
          return CompressedRig(KVStore::create(world), {gpu(world.rank())}, compression,
                               kCompressedRules[1]);
        };
        CompressedRig whole = make();
        for (unsigned step = 0; step < 2; ++step) whole.push(step);
        whole.kv.save(folder.path() / "ckpt");
        CompressedRig resumed = make();
        const auto loaded = resumed.kv.load(folder.path() / "ckpt");
        if (!loaded.reset_residuals.empty()) test::fail_here(loaded.reset_residuals);
        for (unsigned step = 2; step < 4; ++step) {
          whole.push(step);
          resumed.push(step);
        }
        require_same_weights(resumed, whole, 3);
      });
      CHECK(test::all_returned(outcomes));
    }
  }
}

namespace {

/// The bytes of the files with the residuals of all ranks.
std::string residuals_in(const std::filesystem::path& checkpoint, int ranks) {
  std::string all;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string name = "residuals-" + std::to_string(rank) + ".safetensors";
    for (const auto& file : std::filesystem::recursive_directory_iterator(checkpoint)) {
      if (file.path().filename() != name) continue;
      std::ifstream stream(file.path(), std::ios::binary);
      all.append(std::istreambuf_iterator<char>(stream), {});
    }
  }
  return all;
}

}  // namespace

TEST_CASE(
    "residuals of GPUs are saved with the bits of the cpu's, and each goes on with the other's") {
  for (const auto& layout : {std::vector<int>{1}, std::vector<int>{1, 2}}) {
    for (const char* compression : {"2bit,threshold=0.5", "1bit,threshold=0.25"}) {
      const int ranks = test::size_of_job(layout);
      const test::FakeGpus gpus(ranks, 5);
      const test::ScratchFolder folder;
      const auto outcomes = test::as_ranks(layout, test::by("auto"), [&](Communicator& world) {
        const auto make = [&](Device home) {
          return CompressedRig(KVStore::create(world), {home}, compression, kCompressedRules[1]);
        };
        CompressedRig there = make(gpu(world.rank()));
        CompressedRig here = make(cpu());
        for (unsigned step = 0; step < 2; ++step) {
          there.push(step);
          here.push(step);
        }
        there.kv.save(folder.path() / "gpu");
        here.kv.save(folder.path() / "cpu");
        for (const char* other : {"cpu", "gpu"}) {
          CompressedRig& resumed = std::string(other) == "cpu" ? there : here;
          resumed.push(7);  // residuals of its own, which are lost
          static_cast<void>(resumed.kv.load(folder.path() / other));
        }
        for (unsigned step = 2; step < 4; ++step) {
          there.push(step);
          here.push(step);
          require_same_weights(there, here, step);
        }
      });
      CHECK(test::all_returned(outcomes));
      const std::string saved = residuals_in(folder.path() / "gpu", ranks);
      CHECK(saved.size() > static_cast<std::size_t>(ranks) * 70'001 * sizeof(float));
      CHECK(saved == residuals_in(folder.path() / "cpu", ranks));
    }
  }
}

TEST_CASE("what cannot be compressed is refused on GPUs as on the cpu, and changes nothing") {
  const test::FakeGpus gpus(1);
  auto kv = KVStore::create("device");
  kv.init(3, Tensor::ones({2}, DType::float32, gpu(0)));
  kv.init(4, Tensor::ones({2}, DType::float64, gpu(0)));
  const Tensor value = Tensor::full({2}, 0.3, DType::float32, gpu(0));
  const Tensor wide = Tensor::full({2}, 0.3, DType::float64, gpu(0));
  kv.set_gradient_compression("2bit,threshold=0.5");
  test::expect_error(
      [&] {
        kv.push({3, 4}, {value.view(), wide.view()});
      },
      test::kInvalid,
      {"key 4 (2) float64: 2bit,threshold=0.5,leg=all compresses float32 values "
       "only; keep other keys in a store without compression"});
  kv.set_optimizer(tutti::optimizer::create("sgd,clip_global_norm=1"));
  test::expect_error([&] { kv.push(3, value); }, test::kInvalid,
                     {"for gradients without compression, whose residuals would keep what is not "
                      "finite; set no compression, or no such option"});
  kv.set_optimizer(tutti::optimizer::create("sgd,learning_rate=1"));
  kv.push(3, value);
  CHECK(test::pulled<float>(kv, 3, 2) == std::vector<float>{1, 1});  // 0.3 waits
  kv.push(3, value);
  CHECK(test::pulled<float>(kv, 3, 2) == std::vector<float>{0.5, 0.5});
}

namespace {

/// Pushed with a threshold of 8/16; no residual of 1/16 to 7/16 gives the sums of
/// require_no_residual().
constexpr double kFiveSixteenths = 0.3125;

/// Requires that no earlier push of kFiveSixteenths has left a residual in key 1.
void require_no_residual(KVStore& kv, const Tensor& value) {
  const auto count = static_cast<std::int64_t>(value.count());
  const float half = 0.5f * static_cast<float>(kv.num_workers());
  for (const float expected : {0.0f, half, 0.0f}) {
    kv.push(1, value);
    test::require_equal(test::first_of(kv, 1, count), expected, "key 1");
  }
}

}  // namespace

TEST_CASE("a compressed push that differs between ranks changes nothing, not even a residual") {
  for (const auto& layout : test::kSmallLayouts) {
    const test::FakeGpus gpus(test::size_of_job(layout), 3);
    const auto outcomes = test::as_ranks(layout, test::by("auto"), [&](Communicator& world) {
      const Device mine = gpu(world.rank());
      const Tensor value = Tensor::full({100}, kFiveSixteenths, DType::float32, mine);
      auto kv = KVStore::create(world);
      for (const int key : {1, 2}) kv.init(key, Tensor::ones({100}, DType::float32, mine));
      kv.set_gradient_compression("2bit,threshold=0.5");
      for (int attempt = 0; attempt < 2; ++attempt) {
        try {
          kv.push(world.rank() == 1 ? 2 : 1, value);
          test::fail_here("expected an error, got none");
        } catch (const tutti::Error& error) {
          if (error.code() != ErrorCode::mismatch || !error.recoverable()) throw;
        }
      }
      require_no_residual(kv, value);
      test::require_equal(test::first_of(kv, 2, 100), 1.0f, "key 2");
    });
    CHECK(test::all_returned(outcomes));
  }
}

namespace {

/// Takes all blocks of this size, for which the pool has no smaller memory.
std::vector<Tensor> all_blocks_of(Device device, std::int64_t count) {
  std::vector<Tensor> taken;
  try {
    for (;;) taken.push_back(Tensor::empty({count}, DType::float32, device));
  } catch (const tutti::Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
  }
  return taken;
}

/// True if all ranks have refused the push for want of memory on rank 1.
bool is_push_refused(KVStore& kv, const Tensor& value) {
  try {
    kv.push(1, value);
  } catch (const tutti::Error& error) {
    if (error.code() != ErrorCode::out_of_memory || !error.recoverable()) throw;
    if (std::string(error.what()).find("gpu(1)") == std::string::npos) throw;
    return true;
  }
  return false;
}

}  // namespace

TEST_CASE("pushes that lack memory for a bucket, a residual or packed bytes change no residual") {
  constexpr std::int64_t kCount = 300'000;  // more than the pool cuts from slabs
  for (const auto& layout : test::kSmallLayouts) {
    const test::FakeGpus gpus(test::size_of_job(layout), 3, std::size_t{16} << 20);
    const auto outcomes = test::as_ranks(layout, test::by("auto"), [&](Communicator& world) {
      const Device mine = gpu(world.rank());
      auto kv = KVStore::create(world);
      kv.init(1, Tensor::ones({kCount}, DType::float32, mine));
      kv.set_gradient_compression("2bit,threshold=0.5");
      const Tensor value = Tensor::full({kCount}, kFiveSixteenths, DType::float32, mine);
      std::vector<Tensor> taken;
      if (world.rank() == 1) taken = all_blocks_of(mine, kCount);
      int refusals = 0;
      while (is_push_refused(kv, value)) {
        ++refusals;
        if (!taken.empty()) taken.pop_back();
      }
      if (refusals < 3) test::fail_here("few refusals: " + std::to_string(refusals));
      test::require_equal(test::first_of(kv, 1, kCount), 0.0f, "key 1 after one push");
      for (const float expected : {0.5f, 0.0f}) {  // the sums of require_no_residual()
        kv.push(1, value);
        const float sum = expected * static_cast<float>(world.size());
        test::require_equal(test::first_of(kv, 1, kCount), sum, "key 1 after more pushes");
      }
    });
    CHECK(test::all_returned(outcomes));
  }
}

TEST_CASE("a GPU that hangs ends a compressed push on all ranks") {
  test::check_that_a_hang_ends_the_push([](const Communicator& world) {
    const Device mine = gpu(world.rank());
    auto kv = std::make_shared<KVStore>(KVStore::create(world));
    kv->init(1, Tensor::zeros({100}, DType::float32, mine));
    kv->set_gradient_compression("2bit,threshold=0.5");
    auto value = std::make_shared<Tensor>(Tensor::ones({100}, DType::float32, mine));
    kv->push(1, *value);
    return [kv, value] { kv->push(1, *value); };
  });
}
