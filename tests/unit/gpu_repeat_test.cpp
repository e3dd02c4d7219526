// SPDX-License-Identifier: Apache-2.0
// Pushes of one list again and again: what was found out for the last one is used for the next, and
// whatever changes in between must be noticed. Keys on a fake GPU and keys on the cpu see the same.
#include <doctest/doctest.h>
#include <functional>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "tests/support/fake_accelerator.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/unit/expect_error.hpp"
#include "tests/unit/threads.hpp"

using tutti::Communicator;
using tutti::cpu;
using tutti::Device;
using tutti::DType;
using tutti::gpu;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;

namespace {

constexpr std::int64_t kCount = 37;

/// Three keys, a value of each, and what is pulled in the end.
class Rig {
 public:
  Rig(KVStore store, Device device, int rank)
      : kv(std::move(store)), device_(device), rank_(static_cast<unsigned>(rank)) {
    for (const int key : {7, 3, 5}) {
      keys.emplace_back(key);
      values.push_back(tensor());
    }
    kv.init(keys, values);
  }

  Tensor tensor() {
    const auto numbers = test::random_values(kCount, 100 * rank_ + seed_++);
    Tensor tensor = Tensor::empty({kCount}, DType::float32, device_);
    tensor.view().copy_from(Tensor::from(std::span<const float>(numbers)));
    return tensor;
  }
  void push() { kv.push(keys, values); }
  std::vector<float> weights() const {
    std::vector<float> all;
    for (const Key& key : keys) {
      Tensor out = Tensor::zeros({kCount});
      kv.pull(key, out);
      all.insert(all.end(), out.values<float>().begin(), out.values<float>().end());
    }
    return all;
  }

  KVStore kv;
  std::vector<Key> keys;
  std::vector<Tensor> values;

 private:
  Device device_;
  unsigned rank_;
  unsigned seed_ = 0;
};

using Script = std::function<void(Rig&)>;

/// The weights after `script`, on the cpu and on a GPU, with one rank and with three.
void compare(const Script& script) {
  for (const std::vector<int>& layout : {std::vector{1}, std::vector{1, 2}}) {
    std::vector<std::vector<float>> found[2];
    for (const bool on_gpu : {false, true}) {
      const test::FakeGpus gpus(3, 11);
      found[on_gpu].resize(3);
      const auto outcomes =
          test::as_ranks(layout, test::by("host"), [&](Communicator& communicator) {
            const int rank = communicator.rank();
            Rig rig(KVStore::create(communicator), on_gpu ? gpu(rank) : cpu(), rank);
            script(rig);
            found[on_gpu][static_cast<std::size_t>(rank)] = rig.weights();
          });
      REQUIRE(test::all_returned(outcomes));
    }
    CHECK(found[0] == found[1]);
  }
}

}  // namespace

TEST_CASE("values that change their numbers or their places") {
  for (const char* optimizer : {"", "adam,learning_rate=0.1"}) {
    compare([&](Rig& rig) {
      if (*optimizer != '\0') rig.kv.set_optimizer(tutti::optimizer::create(optimizer));
      rig.push();
      rig.push();
      rig.values[1].view() *= 3.0;
      rig.push();
      rig.values[2] = rig.tensor();
      rig.push();
      std::swap(rig.values[0], rig.values[1]);
      rig.push();
      std::swap(rig.keys[0], rig.keys[1]);
      rig.push();
      rig.push();
    });
  }
}

TEST_CASE("an optimizer whose options change, or that is another one") {
  compare([](Rig& rig) {
    const auto adam = tutti::optimizer::create("adam,learning_rate=0.1");
    rig.kv.set_optimizer(adam);
    for (int i = 0; i < 3; ++i) rig.push();
    adam->set_learning_rate(0.02);
    rig.push();
    adam->set_lr_mult(3, 0.5);
    rig.push();
    adam->set_wd_mult(5, 0.5);
    rig.push();
    rig.kv.push(3, rig.values[1]);  // its count is ahead of the others now
    rig.push();
    adam->set_schedule(tutti::Schedule(tutti::schedule::Factor{.step = 2, .factor = 0.5}));
    for (int i = 0; i < 3; ++i) rig.push();
    rig.kv.set_optimizer(tutti::optimizer::create("sgd,learning_rate=0.1,momentum=0.9"));
    for (int i = 0; i < 2; ++i) rig.push();
    rig.kv.set_updater([](const Key&, tutti::ConstTensorView sum, tutti::TensorView stored) {
      stored -= 0.25 * sum;
    });
    for (int i = 0; i < 2; ++i) rig.push();
  });
}

TEST_CASE("a checkpoint that is loaded in between") {
  const test::ScratchFolder folder;
  compare([&](Rig& rig) {
    rig.kv.set_optimizer(tutti::optimizer::create("adam,learning_rate=0.1"));
    for (int i = 0; i < 2; ++i) rig.push();
    rig.kv.save(folder.path() / "checkpoint");
    for (int i = 0; i < 2; ++i) rig.push();
    rig.kv.load(folder.path() / "checkpoint");
    for (int i = 0; i < 2; ++i) rig.push();
    rig.kv.save_optimizer_states(folder.path() / "states");
    rig.push();
    rig.kv.load_optimizer_states(folder.path() / "states");
    for (int i = 0; i < 2; ++i) rig.push();
  });
}

TEST_CASE("what was refused is refused again, and what was right before is right again") {
  for (const Device device : {cpu(), gpu(0)}) {
    const test::FakeGpus gpus(1);
    Rig rig(KVStore::create("device"), device, 0);
    rig.push();
    const auto before = rig.weights();
    std::vector<Tensor> wrong;
    for (int i = 0; i < 3; ++i) wrong.push_back(rig.tensor());
    wrong[1] = Tensor::zeros({kCount + 1}, DType::float32, device);
    for (int i = 0; i < 3; ++i) {
      test::expect_error([&] { rig.kv.push(rig.keys, wrong); }, test::kInvalid,
                         {"key 3 (37) float32: a value has shape (38), expected (37)"});
    }
    CHECK(rig.weights() == before);
    for (Tensor& value : rig.values) value.view() *= 2.0;
    rig.push();
    auto doubled = before;
    for (float& number : doubled) number *= 2.0f;
    CHECK(rig.weights() == doubled);
    rig.kv.set_gradient_compression("2bit,threshold=0.5");
    for (int i = 0; i < 2 && device == gpu(0); ++i) {
      test::expect_error([&] { rig.push(); }, test::kInvalid,
                         {"gradient compression is for keys on"});
    }
  }
}
