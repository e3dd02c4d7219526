// SPDX-License-Identifier: Apache-2.0
// The bits of sums, copies and updates do not depend on the number of threads of a rank.
#include <cstring>
#include <doctest/doctest.h>
#include <iterator>
#include <mutex>
#include <span>

#include "tests/support/optimizer_options.hpp"
#include "tests/support/oracle.hpp"
#include "tests/unit/threads.hpp"

using test::Bits;
using test::bits_of;
using tutti::Communicator;
using tutti::DType;
using tutti::KVStore;
using tutti::Settings;
using tutti::Tensor;

namespace {

/// A count that is large for every dtype that is tested, and no multiple of a tile.
constexpr std::int64_t kOdd = test::kFewRounds ? 200'003 : 300'007;
constexpr int kThreads[] = {3, 2, 8};
constexpr DType kDTypes[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64,
                             DType::int8,    DType::uint8,    DType::int32,   DType::int64};

Settings patient_with(int threads) {
  Settings settings;
  settings.threads = threads;
  settings.timeout = std::chrono::seconds(60);
  return settings;
}

std::vector<Tensor> gradients(std::int64_t count, DType dtype, int owner, int values) {
  std::vector<Tensor> all;
  for (int i = 0; i < values; ++i) {
    all.push_back(test::random_tensor({count}, dtype, owner, static_cast<std::uint64_t>(i)));
  }
  return all;
}

void push_all(KVStore& kv, int key, const std::vector<Tensor>& values) {
  kv.push(key, std::vector<tutti::ConstTensorView>(values.begin(), values.end()));
}

/// The bits of a store of one rank, and of a pull from it, after pushes of several values.
Bits pushed_alone(const std::string& optimizer, DType dtype, int values, int threads) {
  KVStore kv = KVStore::create("local", patient_with(threads));
  if (!optimizer.empty()) kv.set_optimizer(tutti::optimizer::create(optimizer));
  kv.init({1, 2, 3}, {test::random_tensor({kOdd}, dtype, 0), test::random_tensor({5}, dtype, 0),
                      test::random_tensor({kOdd / 3}, dtype, 1)});
  for (int step = 0; step < 2; ++step) push_all(kv, 1, gradients(kOdd, dtype, step, values));
  const std::vector<Tensor> list = gradients(kOdd / 3, dtype, 3, 1);
  kv.push({3, 2}, {list[0], test::random_tensor({5}, dtype, 2)});
  Tensor pulled = Tensor::empty({kOdd}, dtype);
  kv.pull(1, pulled);
  CHECK((bits_of(pulled) == bits_of(kv.view(1))));
  Bits all = bits_of(pulled);
  for (const int key : {2, 3}) test::append(all, kv.view(key));
  return all;
}

std::string text_of(const std::string& name, DType dtype) {
  std::string text = name + ",weight_decay=0.05,clip_gradient=5,learning_rate=0.01";
  if (test::reference_defaults().at(name).contains("momentum")) text += ",momentum=0.5";
  if (size_of(dtype) == 2) text += ",multi_precision=true";
  return text;
}

/// The bits on every rank after an allreduce and a push, with threads as ranks.
std::vector<Bits> among_ranks(const std::vector<int>& nodes, DType dtype, bool in_arena,
                              int threads) {
  std::vector<Bits> all(static_cast<std::size_t>(test::size_of_job(nodes)));
  const auto outcomes = test::as_ranks(nodes, patient_with(threads), [&](Communicator& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    Tensor own = test::random_tensor({kOdd}, dtype, world.rank());
    if (in_arena) {
      Tensor shared = world.allocate({kOdd}, dtype);
      shared.view().copy_from(own);
      own = std::move(shared);
    }
    KVStore kv = KVStore::create(world);
    if (dtype == DType::float32) {
      kv.set_optimizer(tutti::optimizer::create("sgd,learning_rate=0.1,momentum=0.9"));
    }
    kv.init(1, Tensor::zeros({kOdd}, dtype));
    kv.push(1, own);
    push_all(kv, 1, gradients(kOdd, dtype, world.rank(), 3));
    all[rank] = bits_of(kv.view(1));
    world.allreduce(own);
    test::append(all[rank], own);
  });
  CHECK(test::all_returned(outcomes));
  return all;
}

}  // namespace

TEST_CASE("sums of one and of several values have the same bits for every number of threads") {
  for (const DType dtype : kDTypes) {
    if (test::kFewRounds && dtype != DType::float32) continue;
    CAPTURE(std::string(tutti::to_string(dtype)));
    for (const int values : {1, 2, 4, 11}) {
      CAPTURE(values);
      const Bits expected = pushed_alone("", dtype, values, 1);
      for (const int threads : kThreads) {
        CAPTURE(threads);
        CHECK((pushed_alone("", dtype, values, threads) == expected));
      }
    }
  }
}

TEST_CASE("every optimizer gives the same bits for every number of threads") {
  const auto all = std::span(kThreads).first(test::kFewRounds ? 1 : std::size(kThreads));
  for (const std::string& name : test::optimizer_names()) {
    for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      if (test::kFewRounds && dtype != DType::float32) continue;
      const std::string text = text_of(name, dtype);
      CAPTURE(text);
      const Bits expected = pushed_alone(text, dtype, 2, 1);
      for (const int threads : all) {
        CAPTURE(threads);
        CHECK((pushed_alone(text, dtype, 2, threads) == expected));
      }
    }
  }
}

TEST_CASE("ranks with threads hold the bits of ranks without, in every memory and layout") {
  for (const std::vector<int>& nodes : {std::vector{2}, {3}, {1, 1}, {2, 2}}) {
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64}) {
      if (test::kFewRounds && dtype != DType::float32) continue;
      for (const bool in_arena : {true, false}) {
        CAPTURE(nodes.size());
        CAPTURE(nodes.front());
        const auto expected = among_ranks(nodes, dtype, in_arena, 1);
        for (const Bits& one : expected) CHECK((one == expected.front()));
        for (const int threads : {2, 3}) {
          if (test::kFewRounds && threads == 2) continue;
          CHECK((among_ranks(nodes, dtype, in_arena, threads) == expected));
        }
      }
    }
  }
}

TEST_CASE("values that lie in replicas or in each other's outputs are summed before they change") {
  for (const int threads : {1, 3}) {
    CAPTURE(threads);
    KVStore kv = KVStore::create("local", patient_with(threads));
    kv.init({1, 2}, {Tensor::full({kOdd}, 1.0f), Tensor::full({kOdd}, 2.0f)});
    kv.push({1, 2}, {{kv.view(1), kv.view(2)}, {kv.view(1), kv.view(1)}});
    CHECK(kv.view(1).values<float>()[kOdd - 1] == 3.0f);
    CHECK(kv.view(2).values<float>()[kOdd - 1] == 2.0f);
    Tensor first = Tensor::full({kOdd}, 5.0f);
    Tensor second = Tensor::full({kOdd}, 6.0f);
    const std::vector<tutti::ConstTensorView> one = {first, second};
    const std::vector<tutti::ConstTensorView> other = {second, second};
    const std::vector<std::span<const tutti::ConstTensorView>> lists = {one, other};
    const std::vector<tutti::TensorView> outputs = {second.view(), first.view()};
    kv.pushpull({1, 2}, lists, outputs);
    CHECK(second.values<float>()[kOdd - 1] == 11.0f);
    CHECK(first.values<float>()[kOdd - 1] == 12.0f);
  }
}

TEST_CASE("an optimizer of the program's own is called by the program's own thread") {
  class Own final : public tutti::Optimizer {
   public:
    Own() : Optimizer("own", {}), thread_(std::this_thread::get_id()) {}
    [[nodiscard]] int num_states() const override { return 0; }
    void update(const tutti::UpdateStep& /*step*/,
                const tutti::ElementRange<float>& range) const override {
      if (std::this_thread::get_id() != thread_) ++elsewhere;
      for (std::size_t i = 0; i < range.weight.size(); ++i) range.weight[i] += range.gradient[i];
    }
    void update(const tutti::UpdateStep& /*step*/,
                const tutti::ElementRange<double>& /*range*/) const override {}
    mutable std::atomic<int> elsewhere = 0;

   private:
    std::thread::id thread_;
  };
  const auto own = std::make_shared<Own>();
  KVStore kv = KVStore::create("local", patient_with(4));
  kv.set_optimizer(own);
  kv.init(1, Tensor::zeros({kOdd}));
  kv.push(1, Tensor::ones({kOdd}));
  kv.push(1, {Tensor::ones({kOdd}), Tensor::ones({kOdd})});
  CHECK(own->elsewhere == 0);
  CHECK(kv.view(1).values<float>()[kOdd - 1] == 3.0f);
}
