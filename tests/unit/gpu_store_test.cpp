// SPDX-License-Identifier: Apache-2.0
// A store whose values are on a fake GPU.
#include <doctest/doctest.h>
#include <functional>
#include <vector>

#include "tutti/gpu.hpp"
#include "tutti/kvstore.hpp"
#include "tutti/optimizers.hpp"

#include "runtime/gpu/gpus.hpp"
#include "tests/support/checks.hpp"
#include "tests/support/fake_accelerator.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/unit/threads.hpp"

using tutti::Communicator;
using tutti::cpu;
using tutti::Device;
using tutti::DType;
using tutti::gpu;
using tutti::Key;
using tutti::KVStore;
using tutti::Tensor;

// --- stores --------------------------------------------------------------------------------------

// Stores of one rank whose keys are on fake GPUs.

namespace {

Tensor on(Device device, const std::vector<float>& values) {
  Tensor tensor = Tensor::empty({static_cast<std::int64_t>(values.size())}, DType::float32, device);
  tensor.view().copy_from(Tensor::from(std::span<const float>(values)));
  return tensor;
}

std::vector<float> pulled(const KVStore& kv, const Key& key, std::int64_t count,
                          Device device = cpu()) {
  Tensor out = Tensor::zeros({count}, DType::float32, device);
  kv.pull(key, out);
  return test::on_host(out);
}

}  // namespace

TEST_CASE("a device store keeps a key where it comes from, and gives it to any device") {
  for (const unsigned seed : {1u, 2u, 3u}) {
    const test::FakeGpus gpus(3, seed);
    auto kv = KVStore::create("device");
    kv.init(3, on(gpu(1), {1, 2, 3}));
    CHECK(kv.view(3).device() == gpu(1));
    for (const Device device : {cpu(), gpu(0), gpu(1), gpu(2)}) {
      CHECK(pulled(kv, 3, 3, device) == std::vector<float>{1, 2, 3});
    }
  }
}

TEST_CASE("values of several GPUs, of one GPU twice and of the cpu are summed") {
  for (const unsigned seed : {1u, 2u, 3u}) {
    const test::FakeGpus gpus(3, seed);
    auto kv = KVStore::create("device");
    kv.init(3, on(gpu(1), {0, 0}));
    Tensor a = on(gpu(0), {1, 2});
    Tensor b = on(gpu(2), {10, 20});
    Tensor c = on(gpu(2), {100, 200});
    Tensor d = on(cpu(), {1000, 2000});
    kv.push(3, {a.view(), b.view(), c.view(), d.view()});
    for (Tensor* value : {&a, &b, &c, &d}) value->fill(-7);  // they may be reused
    CHECK(pulled(kv, 3, 2) == std::vector<float>{1111, 2222});
  }
}

TEST_CASE("more values than one launch takes are summed in the order given") {
  const test::FakeGpus gpus(1);
  auto kv = KVStore::create("device");
  kv.init(3, on(gpu(0), std::vector<float>(100, 0.0f)));
  std::vector<Tensor> values;
  std::vector<float> expected(100, 0.0f);
  for (unsigned i = 0; i < 21; ++i) {
    const auto random = test::random_values(100, i);
    values.push_back(on(gpu(0), random));
    for (std::size_t j = 0; j < 100; ++j) {
      expected[j] = i == 0 ? random[j] : expected[j] + random[j];
    }
  }
  kv.push(3, values);
  CHECK(pulled(kv, 3, 100) == expected);
}

TEST_CASE("a local store keeps keys on the cpu, and takes values of GPUs") {
  const test::FakeGpus gpus(2);
  auto kv = KVStore::create("local");
  kv.init(3, on(gpu(0), {1, 2}));
  CHECK(kv.view(3).device() == cpu());
  CHECK(pulled(kv, 3, 2, gpu(1)) == std::vector<float>{1, 2});
  Tensor a = on(gpu(0), {5, 6});
  Tensor b = on(gpu(1), {50, 60});
  kv.push(3, {a.view(), b.view()});
  CHECK(pulled(kv, 3, 2) == std::vector<float>{55, 66});
  Tensor out = Tensor::zeros({2}, DType::float32, gpu(1));
  kv.pushpull(3, a, out);
  CHECK(test::on_host(out) == std::vector<float>{5, 6});
}

TEST_CASE("a value on a GPU that is pushed again to a key on the cpu is read again") {
  const test::FakeGpus gpus(1);
  auto kv = KVStore::create("local");
  kv.init({3, 4}, {Tensor::zeros({2}), Tensor::zeros({2})});
  Tensor value = on(gpu(0), {0, 0});
  Tensor other = on(gpu(0), {0, 0});
  for (float step = 1; step < 6; ++step) {
    value.fill(step);
    other.fill(10 * step);
    kv.push({3, 4}, {value.view(), other.view()});
    CHECK(pulled(kv, 3, 2) == std::vector<float>{step, step});
    CHECK(pulled(kv, 4, 2) == std::vector<float>{10 * step, 10 * step});
  }
}

TEST_CASE("a push of many keys is one launch, and so are its pulls") {
  const test::FakeGpus gpus(1);
  auto kv = KVStore::create("device");
  kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 0.5}));
  std::vector<Key> keys;
  std::vector<Tensor> values;
  std::vector<Tensor> outputs;
  for (int i = 0; i < 50; ++i) {
    keys.emplace_back(i);
    values.push_back(on(gpu(0), {static_cast<float>(i), 1}));
    outputs.push_back(Tensor::zeros({2}, DType::float32, gpu(0)));
  }
  kv.init(keys, values);
  const int before = gpus->launches();
  kv.pushpull(keys, values, outputs);
  CHECK(gpus->launches() == before + 2);
  CHECK(test::on_host(outputs[42]) == std::vector<float>{21, 0.5});
}

TEST_CASE("optimizers update keys on a GPU as they do on the cpu") {
  for (const char* name : {"sgd,momentum=0.9", "adam", "dcasgd,momentum=0.5", "lamb"}) {
    CAPTURE(name);
    const test::FakeGpus gpus(1);
    auto there = KVStore::create("device");
    auto here = KVStore::create("local");
    const auto start = test::random_values(1001, 1);
    for (KVStore* kv : {&there, &here}) {
      kv->set_optimizer(tutti::optimizer::create(name));
      kv->init(3, on(kv == &there ? gpu(0) : cpu(), start));
    }
    for (unsigned step = 0; step < 5; ++step) {
      const auto gradient = test::random_values(1001, 10 + step);
      there.push(3, on(gpu(0), gradient));
      here.push(3, on(cpu(), gradient));
    }
    CHECK(pulled(there, 3, 1001) == pulled(here, 3, 1001));
  }
}

TEST_CASE("keys of one push that are on two GPUs have one place in the schedule") {
  const test::FakeGpus gpus(2);
  auto there = KVStore::create("device");
  auto here = KVStore::create("local");
  for (KVStore* kv : {&there, &here}) {
    const auto on_gpu = [&](int device, const std::vector<float>& values) {
      return on(kv == &there ? gpu(device) : cpu(), values);
    };
    kv->set_optimizer(
        tutti::optimizer::create("sgd,learning_rate=1,schedule=factor,step=1,factor=0.5"));
    kv->init({1, 2}, {on_gpu(0, {0, 0}), on_gpu(1, {0, 0})});
    kv->push(2, on_gpu(1, {1, 1}));  // the last key that the store looks at has the most updates
    for (int step = 0; step < 3; ++step) kv->push({1, 2}, {on_gpu(0, {1, 2}), on_gpu(1, {3, 4})});
  }
  for (const int key : {1, 2}) CHECK(pulled(there, key, 2) == pulled(here, key, 2));
}

TEST_CASE("16-bit weights on a GPU keep their float32 copy there") {
  const test::FakeGpus gpus(1);
  auto kv = KVStore::create("device");
  kv.set_optimizer(tutti::optimizer::sgd({.learning_rate = 1.0 / 1024, .multi_precision = true}));
  kv.init(3, Tensor::full({10}, 1.0, DType::bfloat16, gpu(0)));
  const Tensor one = Tensor::full({10}, 1.0, DType::bfloat16, gpu(0));
  for (int i = 0; i < 512; ++i) kv.push(3, one);  // each step is smaller than a bfloat16 can show
  Tensor out = Tensor::zeros({10});
  kv.pull(3, out, tutti::Cast::yes);
  CHECK(out.values<float>()[9] == 0.5f);
}

TEST_CASE("an updater gets its tensors on the GPU") {
  const test::FakeGpus gpus(2);
  auto kv = KVStore::create("device");
  kv.set_updater([](const Key&, tutti::ConstTensorView input, tutti::TensorView stored) {
    CHECK(input.device() == gpu(1));
    stored += 2 * input;
  });
  kv.init(3, on(gpu(1), {1, 1}));
  kv.init(4, on(gpu(1), {2, 2}));
  kv.push({3, 4}, {on(gpu(1), {10, 20}).view(), on(gpu(0), {30, 40}).view()});
  CHECK(pulled(kv, 3, 2) == std::vector<float>{21, 41});
  CHECK(pulled(kv, 4, 2) == std::vector<float>{62, 82});
}

TEST_CASE("pushing two keys' replicas into each other exchanges them") {
  const test::FakeGpus gpus(1);
  auto kv = KVStore::create("device");
  kv.init(3, on(gpu(0), {1, 2}));
  kv.init(4, on(gpu(0), {3, 4}));
  kv.push({3, 4}, {kv.view(4), kv.view(3)});
  CHECK(pulled(kv, 3, 2) == std::vector<float>{3, 4});
  CHECK(pulled(kv, 4, 2) == std::vector<float>{1, 2});
}

TEST_CASE("a checkpoint brings weights and states back to the GPU") {
  const test::FakeGpus gpus(1);
  const test::ScratchFolder folder;
  const auto gradient = test::random_values(100, 1);
  const auto make = [&] {
    auto kv = KVStore::create("device");
    kv.set_optimizer(tutti::optimizer::adam({}));
    kv.init(3, on(gpu(0), test::random_values(100, 2)));
    return kv;
  };
  auto whole = make();
  for (int i = 0; i < 3; ++i) whole.push(3, on(gpu(0), gradient));
  whole.save(folder.path() / "ckpt");
  whole.save_optimizer_states(folder.path() / "states");
  auto resumed = make();
  resumed.load(folder.path() / "ckpt");
  CHECK(resumed.view(3).device() == gpu(0));
  auto again = make();
  again.load(folder.path() / "ckpt", {.weights_only = true});
  again.load_optimizer_states(folder.path() / "states");
  for (KVStore* kv : {&whole, &resumed, &again}) kv->push(3, on(gpu(0), gradient));
  CHECK(pulled(resumed, 3, 100) == pulled(whole, 3, 100));
  CHECK(pulled(again, 3, 100) == pulled(whole, 3, 100));
}

TEST_CASE("what a GPU store cannot do is refused, and changes nothing") {
  const test::FakeGpus gpus(1);
  auto kv = KVStore::create("device");
  kv.init(3, on(gpu(0), {1, 2}));
  kv.init(4, on(cpu(), {1, 2}));
  const Tensor value = on(gpu(0), {5, 6});
  const auto expect = [&](const std::string& words, const std::function<void()>& call) {
    test::expect_error(call, test::kInvalid, {words});
  };
  expect(
      "key 4 (2) float32: it is on cpu(0), and the first key of the list on gpu(0); push keys on "
      "the cpu and keys on GPUs by two calls",
      [&] {
        kv.push({3, 4}, {value.view(), value.view()});
      });
  class Custom final : public tutti::Optimizer {
   public:
    Custom() : Optimizer("custom", {}) {}
    [[nodiscard]] int num_states() const override { return 0; }
    void update(const tutti::UpdateStep&, const tutti::ElementRange<float>&) const override {}
    void update(const tutti::UpdateStep&, const tutti::ElementRange<double>&) const override {}
  };
  kv.set_optimizer(std::make_shared<Custom>());
  expect("key 3 (2) float32: optimizer custom has no kernels for a GPU, and the key is on gpu(0)",
         [&] { kv.push(3, value); });
  kv.set_optimizer(tutti::optimizer::sgd({}));
  kv.init(6, Tensor::zeros({2}, DType::int32, gpu(0)));
  expect("key 6 (2) int32: sgd updates floating-point values",
         [&] { kv.push(6, Tensor::zeros({2}, DType::int32, gpu(0))); });
  CHECK(pulled(kv, 3, 2) == std::vector<float>{1, 2});
}

TEST_CASE("what a pull that failed has begun is not done by the next one") {
  const test::FakeGpus gpus(2);
  auto kv = KVStore::create("device");
  kv.init({1, 2, 3}, {on(gpu(0), {1, 2}), on(gpu(1), {3, 4}), on(cpu(), {5, 6})});
  Tensor first = on(gpu(0), {0, 0});
  Tensor second = on(cpu(), {0, 0});
  gpus->break_down(1);
  CHECK_THROWS_AS(kv.pull({1, 2}, {first, second}), tutti::Error);
  const int launches = gpus->launches();
  CHECK(pulled(kv, 3, 2) == std::vector<float>{5, 6});
  CHECK(gpus->launches() == launches);
}

TEST_CASE("a pushpull whose outputs are refused leaves nothing to the next push") {
  const test::FakeGpus gpus(1);
  auto kv = KVStore::create("device");
  kv.init({1, 2}, {on(gpu(0), {0, 0}), on(gpu(0), {0, 0})});
  const Tensor a = on(gpu(0), {1, 2});
  const Tensor b = on(gpu(0), {10, 20});
  Tensor wrong = Tensor::zeros({3});
  for (const int refused : {1, 2}) {
    for (const Tensor* next : {&b, &a}) {
      kv.push(1, a);
      CHECK_THROWS_AS(kv.pushpull(refused, b, wrong), tutti::Error);
      kv.push(refused, *next);
      CHECK(pulled(kv, refused, 2) == test::on_host(*next));
      if (refused == 2) CHECK(pulled(kv, 1, 2) == std::vector<float>{1, 2});
    }
  }
}

TEST_CASE("a profiler sees the parts of a push by name, also of one that throws") {
  const test::FakeGpus gpus(1);
  auto kv = KVStore::create("device");
  kv.init(3, on(gpu(0), {1, 2}));
  kv.push(3, on(gpu(0), {1, 2}));
  CHECK(gpus->ranges() == std::vector<std::string>{"tutti push", " update"});
  kv.set_updater([](const Key&, tutti::ConstTensorView, tutti::TensorView) {
    throw std::runtime_error("no update");
  });
  CHECK_THROWS_AS(kv.push(3, on(gpu(0), {1, 2})), tutti::Error);
  CHECK(gpus->ranges().size() == 5);
  CHECK(gpus->open_ranges() == 0);
}

TEST_CASE("pushes in their rhythm allocate nothing from the device") {
  const test::FakeGpus gpus(2);
  auto kv = KVStore::create("device");
  kv.set_optimizer(tutti::optimizer::adam({}));
  kv.init(3, on(gpu(0), std::vector<float>(1000, 1.0f)));
  Tensor a = on(gpu(0), std::vector<float>(1000, 1.0f));
  Tensor b = on(gpu(1), std::vector<float>(1000, 1.0f));
  Tensor out = on(gpu(1), std::vector<float>(1000, 0.0f));
  const auto step = [&] {
    kv.push(3, {a.view(), b.view()});
    kv.pull(3, out);
  };
  step();
  const std::size_t before = tutti::gpus::find_gpus()->allocations();
  for (int i = 0; i < 10; ++i) step();
  CHECK(tutti::gpus::find_gpus()->allocations() == before);
}

// --- repeated pushes -----------------------------------------------------------------------------

// Pushes of one list again and again. The results of the last push's look-ups are used for the
// next, so every change in between must be noticed. Keys on a fake GPU and keys on the CPU are
// compared.

namespace {

constexpr std::int64_t kCount = 37;

/// A store of three keys, a value of each, and the values that a pull gives in the end.
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

/// Compares the weights after `script` on the CPU and on a GPU, with one rank and with three.
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
    adam->set_schedule(tutti::Schedule{tutti::schedule::Factor{.step = 2, .factor = 0.5}});
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
  }
}
